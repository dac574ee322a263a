// Method and path to handler. Also who may come in (the API key), and what content a POST must have.
//
// Immutable once the server starts, so all connections share it without a lock.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/http/message.h"

namespace helios {

class Router {
 public:
  /// `tail`: what followed a route's trailing "*", percent-decoded.
  using Handler = std::function<Answer(const HttpRequest& request, std::string_view tail, WakeUp wake)>;

  /// With a key, paths under /v1 need `Authorization: Bearer <key>`; OPTIONS never does.
  explicit Router(std::string api_key = "") : api_key_(std::move(api_key)) {}

  /// `path` may end in "*", which matches any tail that is not empty. A GET route answers HEAD too.
  void add(std::string method, std::string path, Handler handler);
  /// As add("POST", ...), and refuses bodies that are not application/json.
  void add_json_post(std::string path, Handler handler);

  Answer handle(const HttpRequest& request, WakeUp wake) const;

 private:
  struct Route {
    std::string method, path;
    Handler handler;
  };
  bool authorized(const HttpRequest& request) const;

  std::string api_key_;
  std::vector<Route> routes_;
};

}  // namespace helios
