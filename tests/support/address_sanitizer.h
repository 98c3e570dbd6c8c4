// Whether this build has the address sanitizer, for what it does not let a test do.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZEEPO_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ZEEPO_ADDRESS_SANITIZER
#endif

namespace zeepo {

#ifdef ZEEPO_ADDRESS_SANITIZER
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

}  // namespace zeepo
