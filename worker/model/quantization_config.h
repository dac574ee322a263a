// The quantization_config of config.json to the scheme of each matrix.
#pragma once

#include <string>

#include <boost/json.hpp>

#include "worker/model/quantization.h"

namespace helios {

/// `where` is for messages: the file and "quantization_config". Throws LoadError naming field and value.
QuantisedMatrices parse_quantization(const boost::json::object& config, const std::string& where, int num_layers);

}  // namespace helios
