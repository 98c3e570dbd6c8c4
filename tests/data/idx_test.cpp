#include "zeepo/data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using namespace std::string_literals;

// Two images of 2 × 3.
const std::string kImages = "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03"s + "abcdefghijkl";

std::string gzip(const std::string& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(plain.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

IdxArray parse(const std::string& bytes) { return parse_idx(std::as_bytes(std::span(bytes)), "f"); }
std::string fault(const std::string& bytes) {
  return error_text([&] { parse(bytes); });
}

TEST(Idx, ReadsPlainAndGzipped) {
  for (const std::string& bytes : {kImages, gzip(kImages)}) {
    const IdxArray array = parse(bytes);
    EXPECT_EQ(array.extents, (std::vector<std::int64_t>{2, 2, 3}));
    EXPECT_EQ(std::string(array.values.begin(), array.values.end()), "abcdefghijkl");
  }
}

TEST(Idx, ImagesAndLabelsHaveTheirDimensions) {
  const TestDirectory folder;
  const auto images = folder.write("images", gzip(kImages));
  const auto labels = folder.write("labels", "\0\0\x08\x01\0\0\0\x03xyz"s);
  EXPECT_EQ(read_idx_images(images).values.size(), 12u);
  EXPECT_EQ(read_idx_labels(labels).values, (std::vector<std::uint8_t>{'x', 'y', 'z'}));
  EXPECT_EQ(error_text([&] { read_idx_images(labels); }), labels.string() + ": has 1 dimensions, images have 3");
}

TEST(Idx, EveryCutIsAnError) {
  for (const std::string& whole : {kImages, gzip(kImages)})
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_NE(fault(whole.substr(0, bytes)), "") << bytes;
}

TEST(Idx, TrailingBytesAreAnError) {
  EXPECT_EQ(fault(kImages + "m"), "f: has bytes after its 28 declared ones");
  EXPECT_EQ(fault(gzip(kImages + "m")), "f: has bytes after its 28 declared ones");
  EXPECT_EQ(fault(gzip(kImages) + "m"), "f: has bytes after its 28 declared ones");
}

TEST(Idx, HeadersAreNotBelieved) {
  EXPECT_EQ(fault("\x89PNG"s), "f: not an IDX file (it begins with 89 50 4e 47)");
  EXPECT_EQ(fault("\0\0\x0D\x01\0\0\0\x01...."s),
            "f: IDX values of type 0x0d are not supported; unsigned bytes (0x08) are");
  EXPECT_EQ(fault("\0\0\x08\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s),
            "f: its header declares more than 4294967296 values");
  EXPECT_NE(fault("\0\0\x08\x01\x7F\xFF\xFF\xFF"s).find("cut short"), std::string::npos);
}

TEST(Idx, ABombIsNotUnpackedPastItsDeclaredSize) {
  EXPECT_EQ(fault(gzip("\0\0\x08\x01\0\0\0\x01"s + std::string(8'000'000, 'a'))),
            "f: has bytes after its 9 declared ones");
}

TEST(Idx, BrokenGzipIsAnError) {
  std::string packed = gzip(kImages);
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 1);  // its checksum
  EXPECT_NE(fault(packed).find("broken gzip data"), std::string::npos);
}

}  // namespace
}  // namespace zeepo
