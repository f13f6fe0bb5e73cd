// Requests and answers as files, and the part of a SavedModel that names its
// signatures. All numbers are little-endian.
//
//   request: str signature, u32 number of tensors, then the tensors
//   answer:  u32 code (0 = answered), str message, u32 number, tensors
//   tensor:  str name, u32 type (as TensorFlow counts them), u32 rank,
//            i64 sizes, then the values; strings are str each
//   str:     u32 length, bytes

#ifndef TESTS_SERVING_REQUESTS_H_
#define TESTS_SERVING_REQUESTS_H_

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Tensor {
  std::string name;
  uint32_t type = 0;
  std::vector<int64_t> sizes;
  std::string values;                 // raw bytes, or
  std::vector<std::string> strings;   // the elements of a string tensor

  int64_t size() const {
    int64_t product = 1;
    for (int64_t one : sizes) product *= one;
    return product;
  }
};

struct Request {
  std::string signature;
  std::vector<Tensor> tensors;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads what the comment above says, refusing to go beyond the end.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  bool done() const { return place_ == bytes_.size(); }
  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof(value)), sizeof(value));
    return value;
  }
  std::string text() {
    const uint32_t length = number<uint32_t>();
    return {take(length), length};
  }
  std::string raw(size_t length) { return {take(length), length}; }

 private:
  const char* take(size_t length) {
    if (length > bytes_.size() - place_)
      throw std::runtime_error("the request file ends early");
    place_ += length;
    return bytes_.data() + place_ - length;
  }
  const std::string& bytes_;
  size_t place_ = 0;
};

template <typename Number>
void append(std::string* bytes, Number value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline void append_text(std::string* bytes, const std::string& text) {
  append<uint32_t>(bytes, text.size());
  bytes->append(text);
}

// Signatures: name -> inputs and outputs, each name -> tensor of the graph.
struct SignatureNames {
  std::map<std::string, std::string> inputs, outputs;
};

// Calls `use(number, content)` for each field of bytes in a protobuf message.
template <typename Use>
void for_each_field(const std::string& message, Use use) {
  size_t place = 0;
  auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; place < message.size() && shift < 64; shift += 7) {
      const unsigned char byte = message[place++];
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a message of the SavedModel ends early");
  };
  while (place < message.size()) {
    const uint64_t tag = varint();
    size_t length = 0;
    switch (tag & 7) {
      case 0: varint(); continue;
      case 1: length = 8; break;
      case 5: length = 4; break;
      case 2: length = varint(); break;
      default: throw std::runtime_error("not a message");
    }
    if (length > message.size() - place)
      throw std::runtime_error("a message of the SavedModel ends early");
    if ((tag & 7) == 2) use(tag >> 3, message.substr(place, length));
    place += length;
  }
}

// An entry of a map field: its key and its value.
inline std::pair<std::string, std::string> map_entry(const std::string& entry) {
  std::pair<std::string, std::string> both;
  for_each_field(entry, [&](uint64_t number, const std::string& content) {
    (number == 1 ? both.first : both.second) = content;
  });
  return both;
}

// Field numbers of MetaGraphDef, SignatureDef and TensorInfo
// (tensorflow/core/protobuf/meta_graph.proto).
inline std::map<std::string, SignatureNames> read_signatures(
    const std::string& meta_graph) {
  constexpr uint64_t kSignatureDef = 5, kInputs = 1, kOutputs = 2, kName = 1;
  std::map<std::string, SignatureNames> signatures;
  for_each_field(meta_graph, [&](uint64_t number, const std::string& content) {
    if (number != kSignatureDef) return;
    const auto [name, signature] = map_entry(content);
    SignatureNames& names = signatures[name];
    for_each_field(signature, [&](uint64_t side, const std::string& entry) {
      if (side != kInputs && side != kOutputs) return;
      const auto [key, tensor] = map_entry(entry);
      for_each_field(tensor, [&](uint64_t field, const std::string& value) {
        if (field == kName)
          (side == kInputs ? names.inputs : names.outputs)[key] = value;
      });
    });
  });
  return signatures;
}

#endif  // TESTS_SERVING_REQUESTS_H_
