// Loads an export as a server does, with no Python: TensorFlow's SavedModel
// loader and one library of TensorFlow Text's ops. Answers the requests of a
// file, or repeats them from many threads and measures; with both, whether each
// answer is the one that the request has alone.
//
//   serve MODEL OPS.so (--requests FILE | --texts FILE [--signature NAME])
//         [--answers FILE] [--load COUNT --concurrency 1,8,32]

#include <tensorflow/c/c_api.h>
#include <tensorflow/c/tf_tstring.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <thread>

#include "requests.h"

namespace {

using Status = std::unique_ptr<TF_Status, decltype(&TF_DeleteStatus)>;
using TensorPointer = std::unique_ptr<TF_Tensor, decltype(&TF_DeleteTensor)>;

Status new_status() { return {TF_NewStatus(), TF_DeleteStatus}; }

void check(const Status& status, const std::string& what) {
  if (TF_GetCode(status.get()) != TF_OK)
    throw std::runtime_error(what + ": " + TF_Message(status.get()));
}

// Strings inside a tensor own memory that is not freed with it.
void delete_tensor(TF_Tensor* tensor) {
  if (tensor == nullptr) return;
  if (TF_TensorType(tensor) == TF_STRING) {
    auto* strings = static_cast<TF_TString*>(TF_TensorData(tensor));
    for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i)
      TF_TString_Dealloc(&strings[i]);
  }
  TF_DeleteTensor(tensor);
}

TensorPointer to_tensorflow(const Tensor& tensor) {
  const bool is_text = tensor.type == TF_STRING;
  const size_t bytes =
      is_text ? tensor.strings.size() * sizeof(TF_TString)
              : tensor.values.size();
  TensorPointer made(
      TF_AllocateTensor(static_cast<TF_DataType>(tensor.type),
                        tensor.sizes.data(), tensor.sizes.size(), bytes),
      delete_tensor);
  if (is_text) {
    auto* strings = static_cast<TF_TString*>(TF_TensorData(made.get()));
    for (size_t i = 0; i < tensor.strings.size(); ++i) {
      TF_TString_Init(&strings[i]);
      TF_TString_Copy(&strings[i], tensor.strings[i].data(),
                      tensor.strings[i].size());
    }
  } else if (bytes) {
    std::memcpy(TF_TensorData(made.get()), tensor.values.data(), bytes);
  }
  return made;
}

void append_tensor(std::string* bytes, const std::string& name,
                   const TF_Tensor* tensor) {
  append_text(bytes, name);
  append<uint32_t>(bytes, TF_TensorType(tensor));
  append<uint32_t>(bytes, TF_NumDims(tensor));
  for (int i = 0; i < TF_NumDims(tensor); ++i)
    append<int64_t>(bytes, TF_Dim(tensor, i));
  if (TF_TensorType(tensor) != TF_STRING) {
    bytes->append(static_cast<const char*>(TF_TensorData(tensor)),
                  TF_TensorByteSize(tensor));
    return;
  }
  const auto* strings = static_cast<const TF_TString*>(TF_TensorData(tensor));
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i)
    append_text(bytes, {TF_TString_GetDataPointer(&strings[i]),
                        TF_TString_GetSize(&strings[i])});
}

class Server {
 public:
  Server(const std::string& model, const std::string& ops)
      : graph_(TF_NewGraph()) {
    Status status = new_status();
    TF_LoadLibrary(ops.c_str(), status.get());
    check(status, "cannot load " + ops);
    const char* tags[] = {"serve"};
    TF_SessionOptions* options = TF_NewSessionOptions();
    TF_Buffer* meta_graph = TF_NewBuffer();
    session_ = TF_LoadSessionFromSavedModel(options, nullptr, model.c_str(),
                                            tags, 1, graph_, meta_graph,
                                            status.get());
    check(status, "cannot load " + model);
    const auto signatures = read_signatures(
        {static_cast<const char*>(meta_graph->data), meta_graph->length});
    TF_DeleteBuffer(meta_graph);
    TF_DeleteSessionOptions(options);
    for (const auto& [name, names] : signatures) {
      // TensorFlow's own, with which it fills the variables at the start.
      if (name.rfind("__saved_model", 0) == 0) continue;
      Signature& signature = signatures_[name];
      for (const auto& [key, tensor] : names.inputs)
        signature.inputs[key] = find(tensor);
      for (const auto& [key, tensor] : names.outputs) {
        signature.output_names.push_back(key);
        signature.outputs.push_back(find(tensor));
      }
    }
  }

  ~Server() {
    Status status = new_status();
    TF_CloseSession(session_, status.get());
    TF_DeleteSession(session_, status.get());
    TF_DeleteGraph(graph_);
  }

  // Throws if the export has not what a request names.
  void check_names(const Request& request) const {
    if (!signatures_.count(request.signature))
      throw std::runtime_error("there is no signature " + request.signature);
    for (const Tensor& tensor : request.tensors)
      if (!signatures_.at(request.signature).inputs.count(tensor.name))
        throw std::runtime_error("there is no input " + tensor.name);
  }

  // Gives TensorFlow's code; appends the answer to `bytes` where not null.
  int answer(const Request& request, std::string* bytes) const {
    std::vector<TensorPointer> held;
    std::vector<TF_Output> places;
    std::vector<TF_Tensor*> given;
    const Signature& signature = signatures_.at(request.signature);
    const std::vector<TF_Output>& outputs = signature.outputs;
    for (const Tensor& tensor : request.tensors) {
      places.push_back(signature.inputs.at(tensor.name));
      held.push_back(to_tensorflow(tensor));
      given.push_back(held.back().get());
    }
    Status status = new_status();
    std::vector<TF_Tensor*> results(outputs.size());
    TF_SessionRun(session_, nullptr, places.data(), given.data(), given.size(),
                  outputs.data(), results.data(), results.size(), nullptr, 0,
                  nullptr, status.get());
    const int code = TF_GetCode(status.get());
    if (bytes) {
      append<uint32_t>(bytes, code);
      append_text(bytes, TF_Message(status.get()));
      append<uint32_t>(bytes, code == TF_OK ? results.size() : 0);
      for (size_t i = 0; code == TF_OK && i < results.size(); ++i)
        append_tensor(bytes, signature.output_names[i], results[i]);
    }
    for (TF_Tensor* result : results) delete_tensor(result);
    return code;
  }

 private:
  struct Signature {
    std::map<std::string, TF_Output> inputs;
    std::vector<std::string> output_names;
    std::vector<TF_Output> outputs;
  };

  TF_Output find(const std::string& tensor) const {
    const size_t colon = tensor.rfind(':');
    TF_Operation* operation =
        TF_GraphOperationByName(graph_, tensor.substr(0, colon).c_str());
    if (operation == nullptr)
      throw std::runtime_error("the graph has no tensor " + tensor);
    return {operation, std::stoi(tensor.substr(colon + 1))};
  }

  TF_Graph* graph_;
  TF_Session* session_ = nullptr;
  std::map<std::string, Signature> signatures_;
};

std::vector<Request> read_requests(const std::string& path) {
  const std::string bytes = read_file(path);
  Reader reader(bytes);
  std::vector<Request> requests;
  while (!reader.done()) {
    Request request{reader.text(), {}};
    request.tensors.resize(reader.number<uint32_t>());
    for (Tensor& tensor : request.tensors) {
      tensor.name = reader.text();
      tensor.type = reader.number<uint32_t>();
      tensor.sizes.resize(reader.number<uint32_t>());
      for (int64_t& size : tensor.sizes) size = reader.number<int64_t>();
      if (tensor.type == TF_STRING) {
        for (int64_t i = 0; i < tensor.size(); ++i)
          tensor.strings.push_back(reader.text());
      } else {
        const auto type = static_cast<TF_DataType>(tensor.type);
        tensor.values = reader.raw(tensor.size() * TF_DataTypeSize(type));
      }
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// One request a line.
std::vector<Request> read_texts(const std::string& path,
                                const std::string& signature) {
  std::istringstream lines(read_file(path));
  std::vector<Request> requests;
  for (std::string line; std::getline(lines, line);) {
    Tensor tensor;
    tensor.name = "text";
    tensor.type = TF_STRING;
    tensor.sizes = {1};
    tensor.strings = {line};
    requests.push_back({signature, {tensor}});
  }
  return requests;
}

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

// Sends `count` requests from `concurrency` threads; writes one JSON line.
// Compares the answers with those in `alone`, of each request, if there are any.
void load(const Server& server, const std::vector<Request>& requests,
          const std::vector<std::string>& alone, int count, int concurrency) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> milliseconds(count);
  std::atomic<int> next{0}, done{0}, failed{0};
  std::vector<char> is_other(count, false);  // each is of one thread
  std::vector<double> memory(11);
  memory[0] = resident_megabytes();
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < concurrency; ++thread) {
    threads.emplace_back([&] {
      for (int i = next++; i < count; i = next++) {
        const size_t place = i % requests.size();
        std::string bytes;
        const auto sent = Clock::now();
        if (server.answer(requests[place], alone.empty() ? nullptr : &bytes) !=
            TF_OK)
          ++failed;
        is_other[i] = !alone.empty() && bytes != alone[place];
        const std::chrono::duration<double, std::milli> taken =
            Clock::now() - sent;
        milliseconds[i] = taken.count();
        const int part = ++done;
        // Each tenth is passed by one thread alone.
        if (part * 10 / count != (part - 1) * 10 / count)
          memory[part * 10 / count] = resident_megabytes();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> total = Clock::now() - begin;
  std::sort(milliseconds.begin(), milliseconds.end());
  auto percentile = [&](int percent) {
    return milliseconds[std::min(count - 1, count * percent / 100)];
  };
  std::printf(
      "{\"concurrency\": %d, \"requests\": %d, \"failed\": %d, "
      "\"p50_ms\": %.3f, \"p95_ms\": %.3f, \"p99_ms\": %.3f, "
      "\"requests_per_second\": %.2f, \"resident_mb\": [",
      concurrency, count, failed.load(), percentile(50), percentile(95),
      percentile(99), count / total.count());
  for (size_t i = 0; i < memory.size(); ++i)
    std::printf(i ? ", %.1f" : "%.1f", memory[i]);
  std::printf("], \"other\": [");
  const char* comma = "";
  for (int i = 0; i < count; ++i) {
    if (!is_other[i]) continue;
    std::printf("%s%d", comma, i);
    comma = ", ";
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

int run(int count, char** arguments) {
  if (count < 5)
    throw std::runtime_error(
        "usage: serve MODEL OPS.so (--requests FILE | --texts FILE "
        "[--signature NAME]) [--answers FILE] "
        "[--load COUNT --concurrency 1,8,32]");
  std::map<std::string, std::string> options{{"--signature", "serving_default"},
                                             {"--concurrency", "1"}};
  for (int i = 3; i + 1 < count; i += 2)
    options[arguments[i]] = arguments[i + 1];
  const std::vector<Request> requests =
      options.count("--texts") ? read_texts(options["--texts"], options["--signature"])
                               : read_requests(options["--requests"]);
  if (requests.empty()) throw std::runtime_error("there is no request");
  const Server server(arguments[1], arguments[2]);
  for (const Request& request : requests) server.check_names(request);
  std::vector<std::string> alone;
  if (options.count("--answers")) {
    std::ofstream file(options["--answers"], std::ios::binary);
    for (const Request& request : requests) {
      std::string& bytes = alone.emplace_back();
      server.answer(request, &bytes);
      file.write(bytes.data(), bytes.size());
    }
    if (!file.flush()) throw std::runtime_error("cannot write the answers");
  }
  if (options.count("--load")) {
    // TensorFlow optimises the graph for the first one.
    server.answer(requests[0], nullptr);
    std::istringstream levels(options["--concurrency"]);
    for (std::string level; std::getline(levels, level, ',');)
      load(server, requests, alone, std::stoi(options["--load"]),
           std::stoi(level));
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
