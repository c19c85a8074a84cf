#include <coracle/convert/caffe/import.h>
#include <coracle/convert/models.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/serve/infer_codec.h>
#include <coracle/serve/request_parser.h>
#include <coracle/test/fuzz/growth_inputs.h>
#include <coracle/test/fuzz/growth_programs.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/test/lmdb_file.h>
#include <coracle/tools/tensor_csv.h>
#include <coracle/tools/tensor_json.h>
#include <coracle/train/data/byte_pairs.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/database.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/job/job.h>
#include <coracle/train/log/plot.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>

namespace coracle {
namespace {

using Make = std::function<std::string(size_t)>;
using Read = std::function<void(std::string_view)>;

// --- texts ---

std::string Repeat(std::string_view text, size_t bytes) {
  std::string all;
  all.reserve(bytes + text.size());
  while (all.size() < bytes) all += text;
  return all;
}
Make Repeated(std::string begin, std::string part, std::string end = "") {
  return [=](size_t bytes) { return begin + Repeat(part, bytes) + end; };
}
// Parts with their number in place of "@".
Make Numbered(std::string begin, std::string part, std::string end = "", std::string between = "") {
  return [=](size_t bytes) {
    std::string all = begin;
    for (size_t i = 0; all.size() < bytes; ++i) {
      if (i > 0) all += between;
      for (const char c : part) c == '@' ? all += std::to_string(i) : all += c;
    }
    return all + end;
  };
}

// --- binary messages ---

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string Field(int number, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Field(int number, uint64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) + Varint(value);
}

std::string OnnxValue(const std::string& name) {
  const std::string shape = Field(1, Field(2, "n")) + Field(1, Field(1, uint64_t{4}));
  return Field(1, name) + Field(2, Field(1, Field(1, uint64_t{1}) + Field(2, shape)));
}
std::string OnnxModel(const std::string& graph) {
  return Field(1, uint64_t{8}) + Field(8, Field(2, uint64_t{17})) + Field(7, graph);
}
// Nodes that add x to the result of the one before, in order or from the last to the first.
Make OnnxChain(bool reversed) {
  return [=](size_t bytes) {
    const auto name = [](size_t i) { return i == 0 ? "x" : "v" + std::to_string(i); };
    const size_t n = bytes / 24;
    std::string nodes;
    for (size_t k = 0; k < n; ++k) {
      const size_t i = reversed ? n - 1 - k : k;
      nodes +=
          Field(1, Field(1, name(i)) + Field(1, "x") + Field(2, name(i + 1)) + Field(4, "Add"));
    }
    return OnnxModel(nodes + Field(2, "g") + Field(11, OnnxValue("x")) +
                     Field(12, OnnxValue(name(n))));
  };
}
Make OnnxParts(const std::string& part) {
  return [=](size_t bytes) {
    return OnnxModel(Repeat(part, bytes) + Field(2, "g") + Field(11, OnnxValue("x")) +
                     Field(12, OnnxValue("x")));
  };
}

std::string Packed(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
            reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()), 1);
  packed.resize(size);
  return packed;
}

std::string BigEndian32(uint64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}
std::string Chunk(const std::string& type, const std::string& body) {
  const std::string all = type + body;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(all.data()), static_cast<uInt>(all.size()));
  return BigEndian32(body.size()) + all + BigEndian32(crc);
}
std::string PngHead(size_t width, size_t height) {
  return "\x89PNG\r\n\x1a\n" +
         Chunk("IHDR", BigEndian32(width) + BigEndian32(height) + std::string("\x08\0\0\0\0", 5));
}
// Rows of changing bytes, whose compressed form is about as large.
std::string Png(size_t bytes) {
  const size_t width = 4000, height = std::max<size_t>(1, bytes / width);
  std::string plain;
  uint32_t state = 1;
  for (size_t y = 0; y < height; ++y) {
    plain += '\0';
    for (size_t x = 0; x < width; ++x) {
      state = state * 1664525u + 1013904223u;
      plain += static_cast<char>(state >> 24);
    }
  }
  return PngHead(width, height) + Chunk("IDAT", Packed(plain)) + Chunk("IEND", "");
}

// An archive in memory, by the writer of the library.
std::string Npz(const NamedTensors& tensors, bool compressed) {
  const ScratchDirectory directory;
  WriteNpz(tensors, directory.File("a.npz"), compressed);
  return ReadFile(directory.File("a.npz"));
}
std::string Safetensors(const NamedTensors& tensors) {
  const ScratchDirectory directory;
  WriteSafetensors(tensors, directory.File("a.safetensors"));
  return ReadFile(directory.File("a.safetensors"));
}
Tensor Floats(size_t bytes) {
  return Tensor::Zeros(DType::kFloat32, {static_cast<int64_t>(bytes / 4)});
}
NamedTensors ManyTensors(size_t n) {
  NamedTensors tensors;
  for (size_t i = 0; i < n; ++i)
    tensors.emplace_back("t" + std::to_string(i), Tensor::Zeros(DType::kFloat32, {1}));
  return tensors;
}

// --- reading ---

void ReadAllRows(const DataSource& source) {
  std::vector<Tensor> out;
  for (const DataColumn& column : source.columns()) {
    std::vector<int64_t> shape = column.shape.ToVector();
    shape.insert(shape.begin(), 1);
    out.emplace_back(column.dtype, column.sequences ? Shape{0} : Shape(shape));
  }
  for (int64_t row = 0; row < source.size(); ++row) source.Get(std::vector<int64_t>{row}, out);
}

Read Csv(CsvOptions options) {
  options.file = "rows.csv";
  return [options](std::string_view bytes) { ReadAllRows(*ParseCsv(bytes, options)); };
}
CsvOptions WordColumn() {
  CsvOptions options;
  CsvColumn column;
  column.name = "0";
  column.words.emplace();
  column.sequence = "words";
  options.columns = {column};
  return options;
}

// A connection that gets its bytes in pieces of a network.
void ReadRequests(std::string_view bytes) {
  const serve::RequestLimits limits = {.max_body = uint64_t{1} << 28};
  const std::vector<serve::Port> ports = {{"x", DType::kFloat32, {-1}}};
  serve::RequestParser parser(limits);
  while (!bytes.empty() && !parser.done()) bytes.remove_prefix(parser.Feed(bytes.substr(0, 1400)));
  serve::ParseInferRequest(parser.request(), ports, ports);
}
std::string WithLength(const std::string& body) {
  return fmt::format("POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
                     body.size()) +
         body;
}

void ReadLog(std::string_view bytes) {
  const MemoryFile file(bytes);
  PlotSvg({{"run", ReadRunLog(file.path())}});
}

void ReadLevelDbLog(std::string_view bytes) {
  const ScratchDirectory directory;
  const std::string manifest("\x38\xde\x0e\xd0\x14\0\x01", 7);  // no sum of what follows
  WriteFileAtomic(directory.File("CURRENT"), "MANIFEST-000002\n");
  WriteFileAtomic(directory.File("MANIFEST-000002"), manifest + std::string(20, '\1'));
  WriteFileAtomic(directory.File("000003.log"), bytes);
  OpenLevelDb(directory.path());
}

void ExportLayers(std::string_view bytes) {
  const ScratchDirectory directory;
  ProgramDesc program = ParseProgram(bytes);
  Scope parameters;
  for (const std::string& name : PersistableNames(program))
    parameters.Set(name, Tensor::Zeros(DType::kFloat32, {4, 4}));
  ExportOnnx(directory.File("m.onnx"), program, parameters);
}

std::string ProgramBytes(const char* shape, size_t bytes) {
  for (const ProgramShape& known : ProgramShapes()) {
    if (std::string_view(known.name) == shape) return SerializeProgram(ProgramOfSize(known, bytes));
  }
  return "";
}
Make Program(const char* shape) {
  return [shape](size_t bytes) { return ProgramBytes(shape, bytes); };
}
Make ProgramText(const char* shape) {
  return [shape](size_t bytes) {
    const std::string small = ProgramBytes(shape, bytes / 8);
    return ProgramToText(ParseProgram(small));
  };
}

// --- the table ---

class Table {
 public:
  void Honest(const char* reader, const char* input, Make make, Read read) {
    inputs_.push_back({reader, input, false, std::move(make), std::move(read)});
  }
  void Hostile(const char* reader, const char* input, Make make, Read read) {
    inputs_.push_back({reader, input, true, std::move(make), std::move(read)});
  }
  std::vector<ReaderInput> Finish() { return std::move(inputs_); }

 private:
  std::vector<ReaderInput> inputs_;
};

void AddPrograms(Table& table) {
  const Read binary = [](std::string_view bytes) { ParseProgram(bytes, "input"); };
  table.Honest("program", "layers", Program("layers"), binary);
  table.Honest("program", "variables", Program("variables"), binary);
  table.Hostile("program", "empty variables", Repeated("", Field(1, Field(3, ""))), binary);
  table.Hostile("program", "unknown fields", Repeated("", Field(99, uint64_t{1})), binary);
  table.Hostile(
      "program", "cut off", [](size_t n) { return Program("layers")(n).substr(0, n - 7); }, binary);
  const Read text = [](std::string_view bytes) { ParseProgramText(bytes, "input"); };
  table.Honest("program text", "layers", ProgramText("layers"), text);
  table.Hostile("program text", "opening braces", Repeated("blocks { ", "vars { "), text);
  table.Hostile("program text", "unknown fields", Numbered("", "a@: 1\n"), text);
  table.Hostile("program text", "open quote", Repeated("blocks { idx: 0 x: '", "a"), text);
  const Read model = [](std::string_view bytes) { ParseModelText(bytes, "input", "/none"); };
  table.Honest("model text", "layers",
               Numbered("data { name: 'x' shape: [-1, 4] }\n",
                        "layer { scale { input: 'x' scale: 2 output: 'v@' } }\n"),
               model);
  table.Hostile("model text", "misspelt fields",
                Numbered("", "layer { fc { input: 'x' sizee@: 4 } }\n"), model);
  table.Hostile("model text", "opening braces", Repeated("", "layer { "), model);
  table.Hostile("model text", "one name",
                Repeated("data { name: 'x' shape: [4] }\n", "data { name: 'x' shape: [4] }\n"),
                model);
  const Read job = [](std::string_view bytes) { ParseJobText(bytes, "input"); };
  table.Honest("job", "test sets",
               Numbered("name: 'a' model: 'm.pbtxt' train { csv { file: 'a.csv' } }\n",
                        "test_set { name: 't@' data { csv { file: 'a.csv' } } }\n"),
               job);
  table.Hostile("job", "misspelt fields", Numbered("", "batch_sizee@: 3\n"), job);
  table.Hostile("job", "fields given twice", Repeated("", "batch_size: 3\n"), job);
}

void AddTensors(Table& table) {
  const Read npy = [](std::string_view bytes) { ParseNpy(bytes, "input"); };
  table.Honest(
      "npy", "floats", [](size_t n) { return SerializeNpy(Floats(n)); }, npy);
  table.Hostile(
      "npy", "header of blanks",
      [](size_t n) {
        std::string size;
        for (int shift = 0; shift < 32; shift += 8) size += static_cast<char>(n >> shift & 255);
        return std::string("\x93NUMPY\x02\0", 8) + size + std::string(n, ' ');
      },
      npy);
  const Read npz = [](std::string_view bytes) { ParseNpz(bytes, "input"); };
  table.Honest(
      "npz", "stored",
      [](size_t n) {
        return Npz({{"x", Floats(n)}}, false);
      },
      npz);
  table.Honest(
      "npz", "deflated; the size is that of the unpacked bytes",
      [](size_t n) {
        return Npz({{"x", Floats(n)}}, true);
      },
      npz);
  table.Hostile(
      "npz", "many arrays", [](size_t n) { return Npz(ManyTensors(n / 400), false); }, npz);
  table.Hostile("npz", "no directory", Repeated("PK\3\4", "PK\5\6"), npz);
  const Read safe = [](std::string_view bytes) { ParseSafetensors(bytes, "input"); };
  table.Honest(
      "safetensors", "floats",
      [](size_t n) {
        return Safetensors({{"x", Floats(n)}});
      },
      safe);
  table.Hostile(
      "safetensors", "many tensors", [](size_t n) { return Safetensors(ManyTensors(n / 80)); },
      safe);
  const Read json = [](std::string_view bytes) { tools::ParseTensorJson(bytes, "input"); };
  const std::string head = R"({"format": "coracle.tensors", "version": 1, "tensors": [)";
  table.Honest(
      "json tensors", "numbers",
      [=](size_t n) {
        return fmt::format(R"({}{{"name": "x", "dtype": "float32", "shape": [{}], "data": [1.5)",
                           head, n / 5 + 1) +
               Repeat(",2.25", n / 5 * 5) + "]}]}";
      },
      json);
  table.Hostile("json tensors", "many tensors",
                Numbered(head, R"({"name":"t@","dtype":"bool","shape":[0],"data":[]})", "]}", ","),
                json);
  table.Hostile("json tensors", "many keys", Numbered("{", R"("k@":1)", "}", ","), json);
  table.Hostile("json tensors", "opening brackets", Repeated("", "["), json);
  const Read csv = [](std::string_view bytes) { tools::ParseTensorCsv(bytes, "input"); };
  table.Honest("csv tensors", "rows", Repeated("x[0],x[1]\n", "1.5,2\n"), csv);
  table.Hostile("csv tensors", "many columns", Numbered("", "c@", "\n1\n", ","), csv);
}

void AddData(Table& table) {
  table.Honest("csv", "rows", Repeated("", "1.5,2,3.25,0\n"), Csv({}));
  table.Honest("csv", "words", Numbered("", "word@,0\n"), Csv(WordColumn()));
  table.Hostile("csv", "one row", Repeated("", "1,", "0\n"), Csv({}));
  table.Hostile("csv", "open quote", Repeated("1,2\n\"", "\n"), Csv({}));
  table.Hostile("csv", "quotes", Repeated("\"", "\"\"", "\",0\n"), Csv(WordColumn()));
  table.Hostile("csv", "empty lines", Repeated("1,2\n", "\r\n"), Csv({}));
  const Read idx = [](std::string_view bytes) { ParseIdx(bytes, "input"); };
  table.Honest(
      "idx", "bytes",
      [](size_t n) {
        return std::string("\0\0\x08\x01", 4) + BigEndian32(n) + std::string(n, 'b');
      },
      idx);
  const Read lmdb = [](std::string_view bytes) {
    const MemoryFile file(bytes);
    const auto database = OpenLmdb(file.path());
    for (int64_t i = 0; i < database->size(); ++i) database->value(i);
  };
  table.Honest(
      "lmdb", "values",
      [](size_t n) { return MakeLmdb(std::vector<std::string>(100, std::string(n / 100, 'v'))); },
      lmdb);
  table.Hostile(
      "lmdb", "no pages", [](size_t n) { return MakeLmdb({"v"}) + std::string(n, '\xff'); }, lmdb);
  table.Hostile("leveldb", "a damaged log", Repeated("", "abcdefg"), ReadLevelDbLog);
  const Read picture = [](std::string_view bytes) { DecodePicture(bytes, "input", 0); };
  table.Honest("picture", "png", Png, picture);
  table.Honest(
      "picture", "pnm",
      [](size_t n) { return fmt::format("P5 1000 {} 255\n", n / 1000) + std::string(n, 'p'); },
      picture);
  table.Honest(
      "picture", "pnm of digits",
      [](size_t n) {
        return fmt::format("P2 1000 {} 255\n", n / 3000) + Repeat("12 ", n / 3000 * 3000);
      },
      picture);
  table.Hostile(
      "picture", "png of empty chunks",
      [](size_t n) { return PngHead(10, 10) + Repeat(Chunk("IDAT", ""), n); }, picture);
  table.Hostile(
      "picture", "png of texts",
      [](size_t n) { return PngHead(10, 10) + Repeat(Chunk("tEXt", std::string("a\0b", 3)), n); },
      picture);
  table.Hostile("picture", "jpeg of fill bytes", Repeated("\xff\xd8", "\xff"), picture);
  table.Hostile("picture", "pnm of comments", Repeated("P2 ", "#\n"), picture);
  const Read text = [](std::string_view bytes) {
    const MemoryFile file(bytes);
    TextOptions options;
    options.file = file.path();
    MakeTextSource(options, TextPart::kTrain, 4);
  };
  table.Honest("text", "letters", Repeated("", "the cat sat on the mat\n"), text);
  table.Hostile("text", "no UTF-8", Repeated("", "a\xff"), text);
  const Read pairs = [](std::string_view bytes) {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back(AlphabetOf(static_cast<unsigned char>(byte)));
    std::vector<std::string> merges;
    for (const char* pair : {"a b", "ab ab", "abab abab", "a a", "aa aa", "aaaa aaaa"}) {
      merges.emplace_back(pair);
      tokens.push_back(merges.back());
      std::erase(tokens.back(), ' ');
    }
    BytePairs(tokens, merges, "pairs").Encode(bytes);
  };
  table.Honest("byte pairs", "words", Repeated("", "abba abab aaaa\n"), pairs);
  table.Hostile("byte pairs", "one word", Repeated("", "abaab"), pairs);
  const Read words = [](std::string_view bytes) {
    const MemoryFile file(bytes);
    WordList::Read(file.path());
  };
  table.Honest("words", "lines", Numbered("", "w@\n"), words);
  table.Hostile("words", "one line", Repeated("", "w"), words);
  table.Hostile("words", "empty lines", Repeated("w\n", "\n"), words);
}

void AddModels(Table& table) {
  const Read onnx = [](std::string_view bytes) {
    Scope scope;
    ParseOnnx(bytes, "input", scope);
  };
  table.Honest("onnx", "chain", OnnxChain(false), onnx);
  table.Hostile("onnx", "chain from the end", OnnxChain(true), onnx);
  table.Hostile("onnx", "empty nodes", OnnxParts(Field(1, "")), onnx);
  table.Hostile("onnx", "empty initializers", OnnxParts(Field(5, "")), onnx);
  table.Hostile("onnx", "inputs of one name", OnnxParts(Field(11, OnnxValue("x"))), onnx);
  table.Honest("onnx export", "layers", Program("layers"), ExportLayers);
  const Read pir = [](std::string_view bytes) { ParsePir(bytes, "input"); };
  const std::string head =
      R"({"base_code":{"magic":"pir","trainable":true,"version":1},"program":{"regions":[{"#":"r","blocks":[{"#":"b","args":[],"ops":[{"#":"1.data","A":[{"N":"name","AT":{"#":"0.a_str","D":"x"}}],"I":[],"O":[{"%":1,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[4],"NCHW",[],0]}}],"OA":[]})";
  table.Honest(
      "pir", "ops",
      Numbered(
          head,
          R"(,{"#":"1.relu","A":[],"I":[{"%":1}],"O":[{"%":1@,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[4],"NCHW",[],0]}}],"OA":[]})",
          "]}]}]}}"),
      pir);
  table.Hostile("pir", "attributes",
                Numbered(head + R"(,{"#":"1.relu","A":[{"N":"a","AT":{"#":"0.a_i32","D":1}})",
                         R"(,{"N":"a@","AT":{"#":"0.a_i32","D":1}})",
                         R"(],"I":[{"%":1}],"O":[],"OA":[]}]}]}]}})"),
                pir);
  table.Hostile("pir", "opening brackets", Repeated(head, "["), pir);
  const Read net = [](std::string_view bytes) {
    caffe::ImportNet(caffe::ParseNet(bytes, "input"), {});
  };
  const std::string input =
      "name: 'n' input: 'x' input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n";
  table.Honest("caffe", "layers",
               Numbered(input, "layer { name: 'l@' type: 'TanH' bottom: 'x' top: 't@' }\n"), net);
  table.Hostile("caffe", "layers in place",
                Numbered(input, "layer { name: 'l@' type: 'TanH' bottom: 'x' top: 'x' }\n"), net);
  table.Hostile("caffe", "unknown fields", Numbered(input, "a@: 1\n"), net);
  table.Hostile("caffe", "opening braces", Repeated(input, "layer { "), net);
  const Read weights = [](std::string_view bytes) { caffe::ParseCaffeModel(bytes, "input"); };
  const std::string blob =
      Field(7, Field(7, Field(1, uint64_t{1})) + Field(5, std::string(4, '\0')));
  table.Honest(
      "caffe weights", "layers",
      [blob](size_t n) {
        std::string all;
        for (size_t i = 0; all.size() < n; ++i)
          all += Field(100, Field(1, "l" + std::to_string(i)) + Field(2, "Bias") + blob);
        return all;
      },
      weights);
  table.Hostile("caffe weights", "empty layers", Repeated("", Field(100, "")), weights);
}

void AddServing(Table& table) {
  const std::string head = R"({"inputs": [{"name": "x", "datatype": "FP32", )";
  table.Honest(
      "http", "numbers",
      [head](size_t n) {
        return WithLength(fmt::format(R"({}"shape": [{}], "data": [1.5)", head, n / 5 + 1) +
                          Repeat(",2.25", n / 5 * 5) + "]}]}");
      },
      ReadRequests);
  table.Hostile(
      "http", "chunks of one byte",
      [](size_t n) {
        return "POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
               Repeat("1\r\na\r\n", n) + "0\r\n\r\n";
      },
      ReadRequests);
  table.Hostile(
      "http", "many inputs",
      [](size_t n) {
        return WithLength(Numbered("{\"inputs\": [", R"({"name": "x@"})", "]}", ",")(n));
      },
      ReadRequests);
  table.Hostile(
      "http", "opening brackets",
      [](size_t n) { return WithLength("{\"inputs\": " + std::string(n, '[')); }, ReadRequests);
  table.Hostile("http", "one header", Repeated("GET / HTTP/1.1\r\nHost: a\r\na: ", "b"),
                ReadRequests);
  const std::string start = R"({"type": "start", "job": "a", "step": 0, "total_steps": 3, )"
                            R"("steps_per_epoch": 2, "time": 1})"
                            "\n";
  table.Honest(
      "log", "steps",
      Numbered(start, R"({"type": "step", "step": @, "epoch": 0, "values": {"loss": 0.5}, )"
                      R"("learning_rates": {}, "samples_per_second": 1, "time": 2})"
                      "\n"),
      ReadLog);
  table.Hostile(
      "log", "resumed again and again",
      Repeated(start, R"({"type": "step", "step": 1, "epoch": 0, "values": {"loss": 0.5}, )"
                      R"("learning_rates": {}, "samples_per_second": 1, "time": 2})"
                      "\n" +
                          start),
      ReadLog);
  table.Hostile(
      "log", "many series",
      Numbered(start, R"({"type": "step", "step": 1, "epoch": 0, "values": {"loss@": 0.5}, )"
                      R"("learning_rates": {}, "samples_per_second": 1, "time": 2})"
                      "\n"),
      ReadLog);
}

}  // namespace

std::vector<ReaderInput> ReaderInputs() {
  Table table;
  AddPrograms(table);
  AddTensors(table);
  AddData(table);
  AddModels(table);
  AddServing(table);
  return table.Finish();
}

}  // namespace coracle
