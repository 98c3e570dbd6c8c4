// A request under way: its sequences' tickets, and the answer that is made of them, whole or in pieces.
//
// Lives on the thread that answers. When it goes, whatever of it still runs is abandoned.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/http/http_server.h"
#include "zeepo/serve/choice.h"
#include "zeepo/serve/text_queue.h"

namespace zeepo {

class Exchange {
 public:
  // Borrows the model. `id` is what the answer calls itself.
  Exchange(const ServedModel& model, OpenAiRequest request, std::vector<std::shared_ptr<Ticket>> tickets,
           std::string id);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Waits for all of it. Nothing where the client has gone. Throws Error when the model failed.
  std::optional<nlohmann::ordered_json> whole(const std::function<bool()>& gone);
  // Server-sent events until the end, or until the client has gone.
  void stream(const HttpWriter& write, const std::function<bool()>& gone);

 private:
  struct Told {
    std::size_t choice;
    std::string text;
  };
  // Waits for news of any sequence. Calls f(choice, text) for each that has some. Throws Error when one failed.
  void listen(const std::function<void(std::size_t, const std::string&)>& f);
  bool ended() const;
  nlohmann::ordered_json frame(const char* object) const;
  nlohmann::ordered_json usage() const;
  nlohmann::ordered_json chunk(std::size_t choice, nlohmann::ordered_json delta);

  const ServedModel& model_;
  const OpenAiRequest request_;
  const std::vector<std::shared_ptr<Ticket>> tickets_;
  const std::string id_;
  const std::int64_t created_;
  std::vector<std::unique_ptr<Choice>> choices_;
};

}  // namespace zeepo
