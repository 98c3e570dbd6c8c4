#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "job.h"
#include "zeepo/comm/launch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using zeepo::Job;
using zeepo::Recorded;

using GivenBuffer = std::tuple<std::string, std::string, std::vector<std::int64_t>, nb::bytes>;

Recorded recorded_if(bool yes) { return yes ? Recorded::yes : Recorded::no; }
std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

}  // namespace

NB_MODULE(_engine, m) {
  m.doc() = "zeepo's engine, as the package zeepo calls it.";
  nb::set_leak_warnings(false);  // whoever leaves without close() holds the job to the end
  nb::exception<zeepo::Error>(m, "Error", PyExc_RuntimeError);

  m.def(
      "launched",
      [] {
        const zeepo::Launch launch = zeepo::detect_launch();
        return std::make_pair(launch.size, launch.local_rank);
      },
      "How many ranks a launcher has started, and this one's number on its machine.");
  m.def("finish_ranks", &zeepo::finish_ranks, "The clean end of all ranks: when the process ends.");

  nb::class_<Job>(m, "Job", "The ranks joined and, once a module is attached, its engine.")
      .def(nb::init<const std::map<std::string, std::string>&, const std::string&>(), "options"_a, "config"_a)
      .def_prop_ro("rank", &Job::rank)
      .def_prop_ro("size", &Job::size)
      .def_prop_ro("notes", &Job::notes)
      .def("option", &Job::option)
      .def("attach", &Job::attach, "units"_a, "dtype"_a, "optimizer"_a, "momentum"_a, "gpu"_a, "protect"_a)
      .def("load", &Job::load)
      .def("address", &Job::address)
      .def("always_there", [](Job& job, std::size_t unit) { return job.engine().always_there(unit); })
      .def("slots", [](Job& job) { return job.engine().slots(); })
      .def("follow", [](Job& job, std::uintptr_t stream) { job.engine().follow(stream); })
      .def("begin_call", [](Job& job, bool recorded) { job.engine().begin_call(recorded_if(recorded)); })
      .def("end_call", [](Job& job) { job.engine().end_call(); })
      .def("use",
           [](Job& job, const std::vector<std::size_t>& units, bool recorded, bool backward) {
             using Direction = zeepo::Visit::Direction;
             job.engine().use(units, recorded_if(recorded), backward ? Direction::backward : Direction::forward);
           })
      .def("add_gradient",
           [](Job& job, std::size_t unit, std::size_t index, Job::Address address) {
             job.engine().add_gradient({unit, index}, reinterpret_cast<std::byte*>(address));
           })
      .def("set_several_passes",
           [](Job& job, bool several) {
             using Passes = zeepo::TorchEngine::Passes;
             job.engine().set_passes(several ? Passes::several : Passes::one);
           })
      .def("keep_saved",
           [](Job& job, Job::Address address, std::size_t bytes) {
             return job.saved().keep(reinterpret_cast<const std::byte*>(address), bytes);
           })
      .def("wait_saved_left", [](Job& job, std::int64_t number) { job.saved().wait_until_left(number); })
      .def("start_saved",
           [](Job& job, std::int64_t number, Job::Address address) {
             job.saved().start_bringing(number, reinterpret_cast<std::byte*>(address));
           })
      .def("wait_saved_here", [](Job& job, std::int64_t number) { job.saved().wait_until_here(number); })
      .def("drop_saved", &Job::drop_saved)
      .def("unscale", [](Job& job, float scale) { return job.engine().unscale(scale); })
      .def("loss_scale", [](Job& job) { return job.engine().loss_scale(); })
      .def("clip_to", [](Job& job, float norm) { return job.engine().clip_to(norm); })
      .def("step",
           [](Job& job, const std::vector<Job::GivenRule>& rules) {
             const zeepo::StepResult result = job.step(rules);
             return std::make_pair(result.skipped, static_cast<double>(result.loss_scale));
           })
      .def("drop_gradients", [](Job& job) { job.engine().drop_gradients(); })
      .def("settle", [](Job& job) { job.engine().get().settle(); })
      .def("steps_taken", [](Job& job) { return job.engine().get().progress().steps_taken; })
      .def("read", &Job::read)
      .def("broadcast", &Job::broadcast)
      .def("is_on_any_rank", [](Job& job, bool here) { return job.engine().is_on_any_rank(here); })
      .def("any_of", &Job::any_of)
      .def("has_host_room", &Job::has_host_room)
      .def("report", &Job::report)
      .def("save", [](Job& job, const std::string& directory,
                      const nb::bytes& buffers) { return job.save(directory, text_of(buffers)); })
      .def("find_saved",
           [](Job& job, const std::string& directory) {
             const zeepo::FoundCheckpoint found = job.find_saved(directory);
             return nb::make_tuple(found.path.string(), nb::bytes(found.buffers.data(), found.buffers.size()));
           })
      .def("load_saved", &Job::load_saved)
      .def("write_weights",
           [](Job& job, const std::string& file, const std::string& dtype, const std::vector<GivenBuffer>& buffers) {
             std::vector<Job::GivenBuffer> given;
             for (const auto& [name, stored, shape, bytes] : buffers)
               given.emplace_back(name, stored, shape, text_of(bytes));
             job.write_weights(file, dtype, given);
           })
      .def("close", &Job::close)
      .def("abort", &Job::abort);
}
