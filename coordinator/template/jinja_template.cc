#include "coordinator/template/jinja_template.h"

#include <new>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/json_input.h"

namespace helios::jinja {

Error to_error(const Fault& fault, int line) {
  if (fault.code == Errc::kInvalidArgument) return {fault.code, fault.message, {}};
  const int at = fault.line > 0 ? fault.line : line;
  return {fault.code, at > 0 ? cat("line ", std::to_string(at), ": ", fault.message) : fault.message, {}};
}

Result<std::shared_ptr<const JinjaTemplate>> JinjaTemplate::parse(std::string_view source) {
  try {
    return std::shared_ptr<const JinjaTemplate>(new JinjaTemplate(parse_template(source)));
  } catch (const Fault& fault) {
    return to_error(fault);
  }
}

Result<std::string> JinjaTemplate::render(Sandbox& box, std::span<const NamedValue> variables,
                                          std::chrono::system_clock::time_point now) const {
  Evaluator evaluator(*tree_, box, now);
  for (const NamedValue& variable : variables) evaluator.set_variable(variable.name, variable.value);
  TextBuilder out(box);
  try {
    evaluator.run(&out);
  } catch (const Fault& fault) {
    return to_error(fault, evaluator.line());
  } catch (const std::bad_alloc&) {
    return Error{Errc::kTooLarge, "no memory left for the template", {}};
  }
  return std::string(out.view());
}

Result<std::string> JinjaTemplate::render(std::string_view variables, const RenderLimits& limits,
                                          std::chrono::system_clock::time_point now) const {
  Sandbox box(limits);
  std::vector<NamedValue> named;
  try {
    const Value object = read_json(box, variables, "variables");
    if (!object.is(Kind::kDict)) return Error{Errc::kInvalidArgument, "variables: expected a JSON object", {}};
    for (const Dict::Entry& entry : object.dict->entries()) named.push_back({entry.key.str(), entry.value});
  } catch (const Fault& fault) {
    return to_error(fault);
  }
  return render(box, named, now);
}

}  // namespace helios::jinja
