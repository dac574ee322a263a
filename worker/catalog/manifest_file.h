// A core manifest as a JSON file: what a prepared core would declare, written down. For tests of declarations and for
// people who look at a core.
//
// Field names are CoreManifest's own; dtypes by name ("int32"), operations and bindings by their stable numbers. Every
// field is required and unknown ones are refused, so that a misspelt declaration is not an absent one.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"

namespace helios {

/// The file's manifest, its declarations checked by derive_capabilities(). Errors: kNotFound; kCorruptFile: not JSON or
/// not these fields, naming path and field; kMismatch: a malformed declaration (R36), naming buffer, expected, found.
Result<CoreManifest> read_manifest_file(const std::string& path);

/// The same format; a manifest's memory report, which differs between ranks, is left out.
std::string manifest_json(const CoreManifest& manifest);

}  // namespace helios
