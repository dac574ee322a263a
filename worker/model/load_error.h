// What prepare() throws when a model directory or a configuration cannot be served.
#pragma once

#include <stdexcept>

namespace helios {

/// One line with path and value: what was expected and what was found.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace helios
