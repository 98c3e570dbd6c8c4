// One rank of a program of one's own, from its start to its end: the ranks joined, the device chosen, the tiers placed;
// at the end everything settled, reported and checked to be empty.
//
// All calls come from the thread that made it, and every rank makes the same calls. An AttachedEngine is an engine over
// a model of the caller's; close() settles and ends those that are still there. Without close() a rank of several
// counts as failed when it ends. init.h has the same as functions, for a program that needs one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/binding/model_engine.h"
#include "zeepo/runtime/joined_ranks.h"
#include "zeepo/zero/session.h"

namespace zeepo {

enum class ReportAs { nothing, text, json };  // by rank 0: a table on stderr, or one line on stdout

struct RuntimeOptions {
  std::optional<Backend> backend = {};  // none: CUDA where there is a GPU, each rank its own; else the CPU
  Carrier carrier = Carrier::automatic;
  int threads = 0;  // of a rank; 0: OMP_NUM_THREADS, or the machine's cores divided by the ranks on it
  // Budgets of a rank. 0 of the device: this rank's part of what there is. 0 of the host: the same on the CPU; on a
  // GPU, for which host memory is pinned at once, what one engine's ranks meet in, and nothing where NCCL carries.
  // Files are taken at once too.
  std::int64_t device_bytes = 0, host_bytes = 0, nvme_bytes = 0;
  // Of a GPU that another library computes on too: as it is asked for.
  ArenaTier::Taken device_taken = ArenaTier::Taken::at_once;
  std::vector<std::filesystem::path> nvme_paths = {};  // directories that files are striped over; none: no files
  double timeout_seconds = 0;  // after which waiting for a rank that lives is an Error; 0: never
  ReportAs report = ReportAs::text;
};

class Attachment;
class AttachedEngine;

class Runtime {
 public:
  // Joins the ranks as mpirun, srun or a shell has started them. Throws Error for options that cannot be; what goes
  // wrong on one rank of several ends the job on all.
  explicit Runtime(const RuntimeOptions& options);
  // The same on ranks that are joined already. The communicator is borrowed; close() does not finish it.
  Runtime(const RuntimeOptions& options, Communicator& ranks);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() { return communicator().rank(); }
  int size() { return communicator().size(); }
  Backend backend() const { return backend_; }
  Communicator& communicator() { return ranks_.communicator(); }
  Session& session();  // throws Error once closed

  // Settles what is on its way, ends the engines, checks that no tier holds anything, and finishes the job. Returns the
  // report of all ranks, on every rank: "params", "world_size", "comm", "device", and "ranks" as in the summary of
  // `zeepo train`, with the bytes of the whole run. Throws Error, the same on every rank, when a tensor is still held
  // on any of them; and when it has been called before. The runtime is closed in each case; after an Error its tiers
  // stay until it is destroyed, so that such a tensor can go.
  nlohmann::ordered_json close();
  bool closed() const { return closed_; }

  // Ends the job on all ranks with this message, and exits with 1.
  [[noreturn]] void abort_job(const std::string& message) { ranks_.abort_job(message); }

 private:
  friend class Attachment;

  void start();
  void check_options() const;
  void forget(Attachment& attached) noexcept;
  void settle();
  void drop() noexcept;  // the engines
  void print(const nlohmann::ordered_json& report);

  RuntimeOptions options_;
  JoinedRanks ranks_;
  Backend backend_ = Backend::cpu;
  std::unique_ptr<Session> session_;  // null: closed, and nothing held
  bool closed_ = false;
  std::vector<Attachment*> engines_;  // that are still there
  std::int64_t params_ = 0;           // of all engines so far
  CommBytes sent_;                    // by engines that have ended
};

// What a runtime knows of a front end's engine: it must go before what it is attached to does, and may stay when the
// runtime is closed; the engine itself ends then.
class Attachment {
 public:
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

 protected:
  explicit Attachment(Runtime& runtime) : runtime_(&runtime) {}
  virtual ~Attachment() = default;
  // Once there is an engine; and while there still is.
  void join();
  void leave() noexcept;

 private:
  friend class Runtime;
  virtual Engine& engine() = 0;
  virtual void end() noexcept = 0;  // of the engine

  Runtime* runtime_;  // null: closed
};

// An engine over a model, within a runtime: `engine->micro_step(...)`.
class AttachedEngine final : public Attachment {
 public:
  AttachedEngine(Runtime& runtime, Module& model, const EngineOptions& options);
  ~AttachedEngine() override { leave(); }

  ModelEngine* operator->() { return &get(); }
  ModelEngine& operator*() { return get(); }
  ModelEngine& get();  // throws Error once the runtime is closed

 private:
  Engine& engine() override { return *engine_; }
  void end() noexcept override { engine_.reset(); }

  std::unique_ptr<ModelEngine> engine_;
};

}  // namespace zeepo
