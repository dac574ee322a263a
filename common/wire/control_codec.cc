// ControlMessage to and from schemas/control.capnp.
#include "schemas/control.capnp.h"

#include <limits>

#include "common/wire/codec.h"
#include "common/wire/message_reader.h"

namespace helios {
namespace {

using namespace wire;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxWorldSize = 4096;

constexpr bool same(schema::ValueSource a, ValueSource b) { return static_cast<int>(a) == static_cast<int>(b); }
static_assert(same(schema::ValueSource::SEQUENCE, ValueSource::kSequence));
static_assert(same(schema::ValueSource::LOGPROB_REQUESTED, ValueSource::kLogprobRequested));
static_assert(same(schema::ValueSource::LOGPROB_TOKEN_ID_COUNTS, ValueSource::kLogprobTokenIdCounts));
static_assert(same(schema::ValueSource::PROMPT_TARGET_TOKEN, ValueSource::kPromptTargetToken));  // R44: 39
static_assert(static_cast<int>(schema::BufferDtype::FLOAT16) == static_cast<int>(BufferDtype::kFloat16));
static_assert(static_cast<int>(schema::RankState::LOST) == static_cast<int>(RankState::kLost));

// Text that a person or a log reads is made fit for one line; names and addresses are ours and are sent as they are.
capnp::Text::Reader as_text(const std::string& value) { return {value.c_str(), value.size()}; }
capnp::Data::Reader as_data(const std::string& value) {
  return {reinterpret_cast<const kj::byte*>(value.data()), value.size()};
}

void write(const Hello& from, schema::Hello::Builder to) {
  to.setRank(from.rank.value);
  to.setWorldSize(from.world_size);
  to.setLife(from.life);
  to.setPid(from.pid);
  to.setHostKey(as_text(from.host_key));
  to.setHostName(as_text(from.host_name));
  to.setDevice(as_text(from.device));
  to.setStatusUrl(as_text(from.status_url));
}

Hello read(schema::Hello::Reader from) {
  Hello to;
  to.world_size = in_range("world_size", int64_t{from.getWorldSize()}, 1, kMaxWorldSize);
  to.rank = Rank(in_range("rank", int64_t{from.getRank()}, 0, to.world_size - 1));
  to.life = from.getLife();
  to.pid = in_range("pid", from.getPid(), 0, kMaxInt64);
  to.host_key = text("host_key", from.getHostKey(), kMaxNameBytes);
  to.host_name = text("host_name", from.getHostName(), kMaxNameBytes);
  to.device = text("device", from.getDevice(), kMaxNameBytes);
  to.status_url = text("status_url", from.getStatusUrl(), kMaxTextBytes);
  return to;
}

void write(const Welcome& from, schema::Welcome::Builder to) {
  to.setIncarnation(from.incarnation);
  to.setWorldSize(from.world_size);
  to.setGroupKey(as_text(from.group_key));
  to.setCollective(as_text(from.collective));
}

Welcome read(schema::Welcome::Reader from) {
  Welcome to;
  to.incarnation = from.getIncarnation();
  to.world_size = in_range("world_size", int64_t{from.getWorldSize()}, 1, kMaxWorldSize);
  to.group_key = text("group_key", from.getGroupKey(), kMaxNameBytes);
  to.collective = text("collective", from.getCollective(), kMaxNameBytes);
  return to;
}

void write(const BufferDeclaration& from, schema::BufferDeclaration::Builder to) {
  to.setName(as_text(from.name));
  to.setDtype(static_cast<schema::BufferDtype>(from.dtype));
  set_words(to.initShape(from.shape.size()), from.shape);
}

BufferDeclaration read(schema::BufferDeclaration::Reader from) {
  BufferDeclaration to;
  to.name = text("buffer name", from.getName(), kMaxNameBytes);
  to.dtype = static_cast<BufferDtype>(
      in_range("buffer dtype", enum_number(from.getDtype()), 0, static_cast<int64_t>(BufferDtype::kFloat16)));
  to.shape = words_in_range<int64_t>("buffer shape", from.getShape(), kMaxBufferRank, 0, kMaxInt64);
  return to;
}

void write(const GraphDeclaration& from, schema::GraphDeclaration::Builder to) {
  to.setOperation(static_cast<schema::Operation>(from.operation));
  to.setRowCapacity(from.row_capacity);
  auto bindings = to.initBindings(from.bindings.size());
  for (uint32_t i = 0; i < from.bindings.size(); ++i) {
    bindings.set(i, static_cast<schema::ValueSource>(from.bindings[i]));
  }
  auto outputs = to.initOutputs(from.outputs.size());
  for (uint32_t i = 0; i < from.outputs.size(); ++i) outputs.set(i, as_text(from.outputs[i]));
}

ValueSource read_source(schema::ValueSource source) {
  const int64_t number = enum_number(source);
  const bool named = (number >= 1 && number <= static_cast<int64_t>(ValueSource::kSequence)) ||
                     (number >= static_cast<int64_t>(ValueSource::kLogprobRequested) &&
                      number <= static_cast<int64_t>(ValueSource::kLogprobTokenIdCounts)) ||
                     number == static_cast<int64_t>(ValueSource::kPromptTargetToken);
  if (!named) throw Malformed{"graph binding: expected a known value source, found " + std::to_string(number)};
  return static_cast<ValueSource>(number);
}

GraphDeclaration read(schema::GraphDeclaration::Reader from) {
  GraphDeclaration to;
  to.operation = static_cast<Operation>(in_range("graph operation", enum_number(from.getOperation()), 1,
                                                 static_cast<int64_t>(Operation::kScoredPrefill)));
  to.row_capacity = in_range("row_capacity", int64_t{from.getRowCapacity()}, 0, kMaxInt32);
  const auto bindings = from.getBindings();
  const uint32_t num_bindings = list_size("graph bindings", bindings.size(), kMaxBindings);
  for (uint32_t i = 0; i < num_bindings; ++i) to.bindings.push_back(read_source(bindings[i]));
  const auto outputs = from.getOutputs();
  const uint32_t num_outputs = list_size("graph outputs", outputs.size(), kMaxBuffers);
  for (uint32_t i = 0; i < num_outputs; ++i) to.outputs.push_back(text("graph output", outputs[i], kMaxNameBytes));
  return to;
}

void write(const MemoryReport& from, schema::MemoryReport::Builder to) {
  to.setWeightsBytes(from.weights_bytes);
  to.setKvCacheBytes(from.kv_cache_bytes);
  to.setBundleBytes(from.bundle_bytes);
  to.setWorkspaceBytes(from.workspace_bytes);
  to.setPinnedBytes(from.pinned_bytes);
  to.setHostTierBytes(from.host_tier_bytes);
  to.setScoringBytes(from.scoring_bytes);
  to.setDeviceAllocatedBytes(from.device_allocated_bytes);
  to.setDeviceReservedBytes(from.device_reserved_bytes);
}

MemoryReport read(schema::MemoryReport::Reader from) {
  MemoryReport to;
  to.weights_bytes = in_range("weights_bytes", from.getWeightsBytes(), 0, kMaxInt64);
  to.kv_cache_bytes = in_range("kv_cache_bytes", from.getKvCacheBytes(), 0, kMaxInt64);
  to.bundle_bytes = in_range("bundle_bytes", from.getBundleBytes(), 0, kMaxInt64);
  to.workspace_bytes = in_range("workspace_bytes", from.getWorkspaceBytes(), 0, kMaxInt64);
  to.pinned_bytes = in_range("pinned_bytes", from.getPinnedBytes(), 0, kMaxInt64);
  to.host_tier_bytes = in_range("host_tier_bytes", from.getHostTierBytes(), 0, kMaxInt64);
  to.scoring_bytes = in_range("scoring_bytes", from.getScoringBytes(), 0, kMaxInt64);
  to.device_allocated_bytes = in_range("device_allocated_bytes", from.getDeviceAllocatedBytes(), 0, kMaxInt64);
  to.device_reserved_bytes = in_range("device_reserved_bytes", from.getDeviceReservedBytes(), 0, kMaxInt64);
  return to;
}

void write(const CoreManifest& from, schema::CoreManifest::Builder to) {
  to.setModelType(as_text(from.model_type));
  to.setDevice(as_text(from.device));
  to.setDtype(as_text(from.dtype));
  to.setKvCacheDtype(as_text(from.kv_cache_dtype));
  to.setVocabSize(from.vocab_size);
  to.setMaxModelLen(from.max_model_len);
  to.setSlotCapacity(from.slot_capacity);
  to.setTokenCapacity(from.token_capacity);
  to.setPrefillChunk(from.prefill_chunk);
  to.setKvBlockSize(from.kv_block_size);
  to.setKvNumBlocks(from.kv_num_blocks);
  to.setHostNumBlocks(from.host_num_blocks);
  auto buffers = to.initBuffers(from.buffers.size());
  for (uint32_t i = 0; i < from.buffers.size(); ++i) write(from.buffers[i], buffers[i]);
  auto graphs = to.initGraphs(from.graphs.size());
  for (uint32_t i = 0; i < from.graphs.size(); ++i) write(from.graphs[i], graphs[i]);
  write(from.memory, to.initMemory());
}

CoreManifest read(schema::CoreManifest::Reader from) {
  CoreManifest to;
  to.model_type = text("model_type", from.getModelType(), kMaxNameBytes);
  to.device = text("device", from.getDevice(), kMaxNameBytes);
  to.dtype = text("dtype", from.getDtype(), kMaxNameBytes);
  to.kv_cache_dtype = text("kv_cache_dtype", from.getKvCacheDtype(), kMaxNameBytes);
  to.vocab_size = in_range("vocab_size", from.getVocabSize(), 0, kMaxInt32);
  to.max_model_len = in_range("max_model_len", int64_t{from.getMaxModelLen()}, 0, kMaxInt32);
  to.slot_capacity = in_range("slot_capacity", int64_t{from.getSlotCapacity()}, 0, kMaxSlots);
  to.token_capacity = in_range("token_capacity", int64_t{from.getTokenCapacity()}, 0, kMaxTokenCapacity);
  to.prefill_chunk = in_range("prefill_chunk", int64_t{from.getPrefillChunk()}, 0, kMaxInt32);
  to.kv_block_size = in_range("kv_block_size", int64_t{from.getKvBlockSize()}, 0, kMaxInt32);
  to.kv_num_blocks = in_range("kv_num_blocks", int64_t{from.getKvNumBlocks()}, 0, kMaxInt32);
  to.host_num_blocks = in_range("host_num_blocks", int64_t{from.getHostNumBlocks()}, 0, kMaxInt32);
  const auto buffers = from.getBuffers();
  list_size("buffers", buffers.size(), kMaxBuffers);
  for (const auto buffer : buffers) to.buffers.push_back(read(buffer));
  const auto graphs = from.getGraphs();
  list_size("graphs", graphs.size(), kMaxGraphs);
  for (const auto graph : graphs) to.graphs.push_back(read(graph));
  to.memory = read(from.getMemory());
  return to;
}

void write(const Heartbeat& from, schema::Heartbeat::Builder to) {
  to.setIncarnation(from.incarnation);
  to.setState(static_cast<schema::RankState>(from.state));
  to.setLastSequence(from.last_sequence.value);
  to.setBusyForMs(from.busy_for_ms);
  to.setResidentBytes(from.resident_bytes);
  to.setLoadProgress(from.load_progress);
  auto counters = to.initCounters(from.counters.size());
  for (uint32_t i = 0; i < from.counters.size(); ++i) {
    counters[i].setName(from.counters[i].name);
    counters[i].setValue(from.counters[i].value);
  }
}

/// Counters are printed as metrics: a name must not be able to say anything else there.
CounterValue read(schema::CounterValue::Reader from) {
  constexpr double kMaxDouble = std::numeric_limits<double>::max();
  CounterValue to{text("counter", from.getName(), 64), in_range("counter", from.getValue(), -kMaxDouble, kMaxDouble)};
  const bool ours = to.name.starts_with("helios_") &&
                    to.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (!ours) throw Malformed{"counter: expected a name helios_[a-z0-9_]*, found \"" + to.name + "\""};
  return to;
}

Heartbeat read(schema::Heartbeat::Reader from) {
  Heartbeat to;
  to.incarnation = from.getIncarnation();
  to.state = static_cast<RankState>(
      in_range("state", enum_number(from.getState()), 0, static_cast<int64_t>(RankState::kLost)));
  to.last_sequence = Sequence(from.getLastSequence());
  to.busy_for_ms = in_range("busy_for_ms", from.getBusyForMs(), 0, kMaxInt64);
  to.resident_bytes = in_range("resident_bytes", from.getResidentBytes(), 0, kMaxInt64);
  to.load_progress = in_range("load_progress", from.getLoadProgress(), 0.0, 1.0);
  const auto counters = from.getCounters();
  to.counters.reserve(list_size("counters", counters.size(), kMaxCounters));
  for (const auto counter : counters) to.counters.push_back(read(counter));
  return to;
}

/// One overload for each alternative of ControlMessage: choosing the union's member is what it does.
struct ControlWriter {
  schema::Control::Builder to;

  void operator()(const Hello& m) { write(m, to.initHello()); }
  void operator()(const Welcome& m) { write(m, to.initWelcome()); }
  void operator()(const Ready& m) {
    auto ready = to.initReady();
    ready.setIncarnation(m.incarnation);
    write(m.manifest, ready.initManifest());
  }
  void operator()(const Heartbeat& m) { write(m, to.initHeartbeat()); }
  void operator()(const Fault& m) {
    auto fault = to.initFault();
    fault.setIncarnation(m.incarnation);
    fault.setMessage(as_text(one_line(m.message, kMaxTextBytes)));
  }
  void operator()(const Drain&) { to.initDrain(); }
  void operator()(const Abort& m) { to.initAbort().setReason(as_text(one_line(m.reason, kMaxTextBytes))); }
  void operator()(const StoreSet& m) {
    auto set = to.initStoreSet();
    set.setKey(as_data(m.key));
    set.setValue(as_data(m.value));
  }
  void operator()(const StoreGet& m) { to.initStoreGet().setKey(as_data(m.key)); }
  void operator()(const StoreValue& m) {
    auto value = to.initStoreValue();
    value.setKey(as_data(m.key));
    value.setValue(as_data(m.value));
  }
};

template <class KeyValue, class Reader>
KeyValue read_key_value(Reader from) {
  return {data("store key", from.getKey(), kMaxStoreKeyBytes),
          data("store value", from.getValue(), kMaxStoreValueBytes)};
}

ControlMessage read(schema::Control::Reader from) {
  switch (from.which()) {
    case schema::Control::NONE:
      break;
    case schema::Control::HELLO:
      return read(from.getHello());
    case schema::Control::WELCOME:
      return read(from.getWelcome());
    case schema::Control::READY: {
      const auto ready = from.getReady();  // each accessor that follows a pointer is called once: it is counted
      return Ready{ready.getIncarnation(), read(ready.getManifest())};
    }
    case schema::Control::HEARTBEAT:
      return read(from.getHeartbeat());
    case schema::Control::FAULT: {
      const auto fault = from.getFault();
      return Fault{fault.getIncarnation(), text("fault", fault.getMessage(), kMaxTextBytes)};
    }
    case schema::Control::DRAIN:
      return Drain{};
    case schema::Control::ABORT:
      return Abort{text("abort reason", from.getAbort().getReason(), kMaxTextBytes)};
    case schema::Control::STORE_SET:
      return read_key_value<StoreSet>(from.getStoreSet());
    case schema::Control::STORE_GET:
      return StoreGet{data("store key", from.getStoreGet().getKey(), kMaxStoreKeyBytes)};
    case schema::Control::STORE_VALUE:
      return read_key_value<StoreValue>(from.getStoreValue());
  }
  throw Malformed{"kind: expected a known message, found " + std::to_string(static_cast<int>(from.which()))};
}

}  // namespace

std::string encode_control(const ControlMessage& message) {
  capnp::MallocMessageBuilder builder;
  std::visit(ControlWriter{builder.initRoot<schema::Control>()}, message);
  return to_bytes(MessageKind::kControl, builder);
}

Result<ControlMessage> decode_control(std::span<const std::byte> bytes) {
  return read_message<schema::Control>(MessageKind::kControl, "control message", bytes,
                                       [](schema::Control::Reader reader) { return read(reader); });
}

}  // namespace helios
