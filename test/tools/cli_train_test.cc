// The command as a user runs it: jobs, what they save, and the commands that run it.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>

namespace coracle::cli_train_test {

// Trained with batch statistics, run with the moving ones, which are frozen.
TEST_F(Cli, SavedModelsAreFrozen) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { conv2d { input: "image" num_filters: 4 filter_size: 5 stride: 3 output: "c" } }
    layer { batch_norm { input: "c" act: "relu" output: "n" } }
    layer { fc { input: "n" size: 10 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    model: "net.pbtxt" train { digits { count: 100 } } test { digits { count: 50 } }
    loss: "loss" optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 max_iter: 2
    deploy { input: "image" output: "logits" })");
  Expect("coracle train job.pbtxt --out=out", 0, {"final: loss="});
  Expect("coracle test out/eval job.pbtxt --profile", 0, {"conv2d", "test: loss="});
  const Result test = Shell("cd " + dir_ + " && coracle test out/eval job.pbtxt --profile");
  EXPECT_EQ(test.text.find(" batch_norm "), std::string::npos) << test.text;  // no such op
  Expect("coracle time out/model.pdmodel --batch_size=2 --iterations=2", 0,
         {"batch of 2, 2 runs", "conv2d", "whole step"});
  WriteNpy(Tensor::Zeros(DType::kFloat32, {2, 1, 28, 28}), Path("zeros.npy"));
  Expect(
      "coracle run out/model.pdmodel --feed=zeros.npy --repeat=2 --save_params=again.pdiparams "
      "&& cmp again.pdiparams out/model.pdiparams",
      0, {"logits: float32[2, 10]"});
}

TEST_F(Cli, TrainStopResumeAndTest) {
  WriteFileAtomic(Path("softmax.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 num_flatten_dims: 1 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } }
    layer { accuracy { input: "logits" label: "label" output: "acc" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model: "softmax.pbtxt"
    train { digits { count: 300 } } test { digits { count: 100 } }
    loss: "loss" metric { var: "acc" name: "accuracy" }
    optimizer { sgd { learning_rate: 0.1 } }
    batch_size: 50 max_iter: 6 snapshot_interval: 2
    deploy { input: "image" output: "logits" })");
  Expect("coracle train job.pbtxt --out=whole", 0, {"final: loss=", "accuracy="});
  Expect("coracle train job.pbtxt --out=parts --max_iter=2", 0, {"final: loss="});
  Expect("coracle train job.pbtxt --out=parts --resume", 0, {"final: loss="});
  Expect("cmp whole/model.pdiparams parts/model.pdiparams && cmp whole/main.pb parts/main.pb", 0,
         {});
  Expect("coracle test whole/eval job.pbtxt", 0, {"test: ", "loss="});
  Expect("coracle test whole/eval job.pbtxt --profile", 0, {"ms in all", "fc", "test: loss="});
  WriteFileAtomic(Path("again.pbtxt"), R"(
    model: "whole/main.pb" train { digits { count: 50 } } max_iter: 1)");
  Expect("coracle train again.pbtxt --out=again", 1,
         {"again.pbtxt:2:5: nothing initialises 'fc_0.w_0'", "give a model text"});
  const std::string last = "parts/snapshots/step_00000006";
  Expect("coracle snapshot softmax.pbtxt", 1, {"no snapshot in 'softmax.pbtxt'"});
  Expect("coracle snapshot parts/snapshots", 0,
         {last + ": job 'tiny', step 6", "fc_0.w_0", "evaluation   test at step 6: loss="});
  Expect("coracle snapshot whole/snapshots " + last, 0,
         {"3 of 3 variables are the same bit for bit"});
  Expect("printf x >> " + last + "/job.pbtxt; coracle snapshot " + last, 1,
         {"damaged snapshot: " + last + "/job.pbtxt"});
  Expect("coracle train job.pbtxt --out=parts --resume", 1,
         {"damaged snapshot: ", "an older one: --resume=parts/snapshots/step_00000004"});
  Expect("coracle train job.pbtxt --out=whole --seed=5 --resume", 1,
         {"cannot be continued: its random_seed is 1, the job's is 5", "--override"});
  Expect("coracle train job.pbtxt --out=whole --seed=5 --resume --override", 0,
         {"override: whole/snapshots/step_00000006: its random_seed is 1, the job's is 5"});
  Expect("coracle train job.pbtxt --override", 2, {"--override needs --resume"});
  Expect("coracle plot whole parts -o c.svg && head -c 4 c.svg", 0, {"c.svg\n<svg"});
  Expect("coracle plot whole -o c.png", 2, {"--out must end in .svg, got 'c.png'"});
  Expect("coracle plot nowhere", 1, {"cannot open 'nowhere'"});
  Expect("coracle time softmax.pbtxt --batch_size=4 --iterations=3", 0,
         {"batch of 4, 3 runs, milliseconds", "\nlogits ", "\nwhole step"});
  Expect("coracle plot . -o c.svg", 1,
         {"'.' is not the output directory of a run: it has no log.jsonl"});
  Expect("coracle snapshot whole && coracle snapshot whole/snapshots", 0, {"step 6"});
  Expect("coracle test whole job.pbtxt", 0, {"test: loss="});
  Expect("coracle test job.pbtxt whole/eval.pdmodel", 2, {"MODEL comes before JOB.pbtxt, got '"});
  Expect("coracle test whole/main.pb job.pbtxt", 1,
         {"'whole/main.pb' is not a saved model; give one"});
  Expect("coracle train whole/eval.pdmodel", 1,
         {"coracle: whole/eval.pdmodel: a binary file, but a job is a text"});
  Expect("coracle train job.pbtxt --max_seconds=-1", 2,
         {"--max_seconds must be finite and not negative, got -1"});
  Expect("coracle train job.pbtxt --max_seconds=nan", 2,
         {"--max_seconds must be finite and not negative"});
  Expect("coracle time softmax.pbtxt --batch_size=99999999999", 2,
         {"--batch_size takes a whole number below 2147483648, got '99999999999'"});
  Expect("coracle time job.pbtxt --iterations=2", 0, {" runs, milliseconds", "\nlogits "});
  Expect("coracle time job.pbtxt --batch_size=3 --iterations=2", 0, {"batch of 3, 2 runs"});
  Expect("coracle time job.pbtxt --loss=loss", 2, {"--loss is for a model: a job names its loss"});
  Expect("coracle time softmax.pbtxt --loss=los", 1, {"--loss: the model has no variable 'los'"});
  WriteFileAtomic(
      Path("open.pbtxt"),
      "data { name: 'x' shape: [-1, 3, -1] } layer { relu { input: 'x' output: 'y' } }");
  Expect("coracle time open.pbtxt", 1,
         {"not all dims are known of the feed 'x' float32[-1, 3, -1]; give them with "
          "--shape=x:64x3xN\n"});
  Expect("coracle time open.pbtxt --shape=x:5x3x7 --iterations=2", 0,
         {"input x float32[5, 3, 7]\nbatch of 5, 2 runs, milliseconds\n"});
  Expect("coracle time open.pbtxt --shape=x:5x3x7,x:2x3x7", 2,
         {"'x' has two shapes: 'x:5x3x7' and 'x:2x3x7'"});
  WriteFileAtomic(Path("fixed.pbtxt"),
                  "data { name: 'x' shape: [2, 3] } layer { relu { input: 'x' output: 'y' } }");
  Expect("coracle time fixed.pbtxt --iterations=2", 0,
         {"input x float32[2, 3]\n2 runs, milliseconds\n"});
  // Labels follow the batch of --shape, and rows of sequences are one.
  WriteFileAtomic(Path("two.pbtxt"), R"(
    data { name: 'label' shape: [-1, 1] dtype: INT64 }
    data { name: 'x' shape: [-1, 3] }
    layer { softmax_with_cross_entropy { logits: 'x' label: 'label' output: 'ce' } })");
  Expect("coracle time two.pbtxt --shape=x:5x3 --iterations=2", 0,
         {"input label int64[5, 1]\ninput x float32[5, 3]\nbatch of 5, 2 runs, milliseconds\n"});
  WriteFileAtomic(Path("words.pbtxt"), R"(
    data { name: 'x' shape: [-1, 1] lod_level: 1 }
    layer { op { sequence_softmax { X: 'x' Out: 'y' } } })");
  Expect("coracle time words.pbtxt --shape=x:7x1 --iterations=2", 0,
         {"input x float32[7, 1]\nbatch of 1, 2 runs, milliseconds\n"});
  Expect("coracle time open.pbtxt --shape=z:5x3x7", 1, {"--shape: the program is not fed 'z'"});
  Expect("coracle time job.pbtxt --shape=x:5x3x7", 2, {"--shape is for a model"});
  Expect("coracle dump whole/main.pb", 0, {"training step: forward", "update 2 (sgd)"});
  Expect("coracle train nowhere.pbtxt", 1, {"nowhere.pbtxt"});
  Expect("coracle train job.pbtxt --max_iter=0", 2, {"--max_iter must be at least 1, got 0"});
  Expect("coracle train job.pbtxt --out=new --resume=nowhere", 1, {"no snapshot in 'nowhere'"});
  Expect("coracle test softmax.pbtxt job.pbtxt", 1, {"'softmax.pbtxt' is not a saved model"});
  Expect("coracle train job.pbtxt --data-dir", 2, {"--data_dir needs a value"});
}

TEST_F(Cli, GenerateWritesNewText) {
  std::string text;
  for (uint32_t i = 0, x = 1; i < 400; ++i, x = x * 1664525u + 1013904223u)
    text += x >> 30 ? "ab\n" : "ba\n";
  WriteFileAtomic(Path("text.txt"), text);
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "letters"
    model_text: "data { name: 'text' shape: [-1, -1] dtype: INT64 }"
      " data { name: 'next' shape: [-1, -1, 1] dtype: INT64 }"
      " data { name: 'h0' shape: [1, -1, 8] }"
      " layer { embedding { input: 'text' num_embeddings: 3 embedding_dim: 3 output: 'e' } }"
      " layer { gru { input: 'e' hidden_size: 8 initial_h: 'h0' last_h: 'h1' output: 'y' } }"
      " layer { fc { input: 'y' size: 3 num_flatten_dims: 2 output: 'logits' } }"
      " layer { softmax_with_cross_entropy { logits: 'logits' label: 'next' output: 'ce' } }"
      " layer { mean { input: 'ce' output: 'loss' } }"
    train { text { file: "text.txt" sequence_length: 12 } }
    test { text { file: "text.txt" sequence_length: 12 } }
    carry { from: "h1" to: "h0" }
    loss_name: "nats"
    optimizer { adam { learning_rate: 0.02 } }
    batch_size: 4
    epochs: 4
    deploy { input: "text" output: "logits" }
  )");
  Expect("coracle train job.pbtxt --out=out", 0,
         {"vocabulary out/vocabulary.json", "final: nats="});
  Expect(
      "coracle generate out --prompt='ab' --length=30 --seed=3 > one && "
      "coracle generate out --prompt='ab' --length=30 --seed=3 > two && cmp one two && wc -c < one",
      0, {"33"});
  Expect("coracle generate out --length=9 --temperature=0", 0, {"ab\nab\nab"});
  Expect("coracle generate out --prompt=xyz", 1, {"prompt: the character 'x' at byte 0 is not"});
  Expect("coracle generate out --temperature=-1", 1, {"temperature must be finite"});
  Expect("coracle generate nowhere", 1, {"nowhere"});
  Expect("coracle generate", 2, {"takes one MODEL_DIR"});
  Expect("coracle test out/eval.pdmodel job.pbtxt", 0, {"test: nats="});
}

// A sweep: a grid, its resumption, successive halving, and the list of its runs.
TEST_F(Cli, SweepAndRuns) {
  WriteFileAtomic(Path("softmax.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 num_flatten_dims: 1 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model: "softmax.pbtxt"
    train { digits { count: 200 } } test { digits { count: 100 } }
    optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 max_iter: 8)");
  Expect("coracle train job.pbtxt --set=max_iter=3 --set=name=other && ls output/other/log.jsonl",
         0, {"final: loss="});
  Expect("coracle train job.pbtxt --set=optimizer.sgd.learning_rat=3", 1,
         {"learning_rat: no such field in sgd; did you mean learning_rate?"});
  Expect("coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.001,0.1,1e30", 0,
         {"3 trials in output/tiny_sweep", "trial 3: step 8", "trial       test/loss",
          "optimizer.sgd.learning_rate=0.1\n", "curves.svg"});
  // A single run with the same settings gives the same loss as its trial.
  Expect(
      "coracle train job.pbtxt --set=optimizer.sgd.learning_rate=0.001 --out=single && "
      "cmp single/model.pdiparams output/tiny_sweep/trial_001/model.pdiparams; "
      "grep -o '\"loss\":[0-9.]*' single/log.jsonl | tail -1 > a; "
      "grep -o '\"loss\":[0-9.]*' output/tiny_sweep/trial_001/log.jsonl | tail -1 > b; cmp a b",
      0, {"final: loss="});
  // Nothing is left to do.
  const Result again = Shell("cd " + dir_ + " && coracle sweep job.pbtxt " +
                             "--set=optimizer.sgd.learning_rate=0.001,0.1,1e30");
  EXPECT_EQ(again.text.find("trial 1: step"), std::string::npos) << again.text;
  Expect("coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.5", 1,
         {"sweep.json: holds another sweep; give --overwrite or another --out"});
  Expect(
      "coracle sweep job.pbtxt --set='optimizer.sgd.learning_rate=log(1e-5..1)' --trials=4 "
      "--halving=2 --jobs=2 --out=halved",
      0, {"4 trials in halved", "step 2", "step 4", "step 8"});
  Expect("coracle runs halved", 0,
         {"halved/trial_001", "halved/trial_004", "done", "2/2", "8/8", "test/loss="});
  Expect("coracle runs output --json", 0, {"\"state\": \"done\"", "optimizer.sgd.learning_rate"});
  Expect("coracle runs nowhere", 1, {"there is no directory 'nowhere'"});
  Expect(
      "mkdir -p output/bad && echo '{\"type\": 1}' > output/bad/log.jsonl && coracle runs output",
      0, {"left out: not a run's log: output/bad/log.jsonl:1", "output/tiny_sweep/trial_001"});
  Expect("coracle sweep job.pbtxt --set=max_iter=1,2 --halving=2 --out=refused", 2,
         {"--halving sets max_iter itself; remove --set=max_iter"});
  // The sweep's record keeps why a trial has no value. A trial that is complete does not run again.
  const std::string failing =
      "coracle sweep job.pbtxt --set='model=\"softmax.pbtxt\",\"nowhere.pbtxt\"' --out=failing";
  Expect(failing + " && cat failing/sweep.json", 0,
         {"trial 2: step 0, failed: ", "\ntrial 2 failed: ", "\"errors\": {\n  \"2\": \""});
  WriteFileAtomic(Path("failing/trial_002/log.jsonl"),
                  "{\"type\":\"start\",\"job\":\"tiny\",\"step\":0,\"total_steps\":8,"
                  "\"steps_per_epoch\":4,\"time\":1}\n"
                  "{\"type\":\"end\",\"step\":8,\"stopped\":false,\"time\":2}\n");
  Expect(failing + " | grep -A9 '^trial  '; tail -1 failing/table.txt", 0,
         {"nowhere.pbtxt", "\ntrial 2 failed: "});
  // A trial that was interrupted in its last round goes on from there.
  Expect(
      "for i in 1 2 3 4; do grep -q '\"step\":8' halved/trial_00$i/log.jsonl && "
      "sed -i '$d' halved/trial_00$i/log.jsonl; done; coracle sweep job.pbtxt "
      "--set='optimizer.sgd.learning_rate=log(1e-5..1)' --trials=4 --halving=2 --out=halved > o; "
      "grep -c '^trial [1-4]: step 8' o; grep -c 'step [24],' o; true",
      0, {"1\n0\n"});
  // The best evaluation decides if the job keeps its best, or if a flag says so.
  Expect(
      "sed -i 's/^    optimizer/    best { } optimizer/' job.pbtxt && "
      "coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.001,0.1 --out=kept",
      0, {"trial  best test/loss"});
  const std::string early =
      "{\"type\":\"test\",\"set\":\"test\",\"step\":4,\"rows\":1,"
      "\"values\":{\"loss\":0.0125},\"time\":1}";
  Expect("sed -i '2i " + early +
             "' kept/trial_001/log.jsonl && coracle sweep job.pbtxt "
             "--set=optimizer.sgd.learning_rate=0.001,0.1 --out=kept | grep -A1 '^trial'",
         0, {"    1          0.0125"});
  Expect(
      "coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.001,0.1 --out=kept "
      "--compare=last | grep -A1 '^trial'",
      0, {"trial       test/loss", "\n    2  "});
  // A metric of training has no evaluations.
  Expect(
      "coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.001,0.1 --out=kept "
      "--metric=train/loss | grep -A1 '^trial'",
      0, {"trial      train/loss", "\n    2  "});
  Expect("coracle sweep job.pbtxt --set=epochs=1 --metric=train/loss --compare=best --out=t", 2,
         {"--compare=best is of evaluations"});
  Expect("coracle sweep job.pbtxt", 2, {"needs --set=FIELD=VALUES, at least once"});
  Expect("coracle sweep job.pbtxt --set=batch_size=1..9", 2, {"a range needs --trials=N"});
  // Trials of the old text would pass for trials of the new one.
  Expect(
      "echo ' random_seed: 5' >> job.pbtxt && coracle sweep job.pbtxt "
      "--set=optimizer.sgd.learning_rate=0.001,0.1,1e30",
      1, {"sweep.json: the job has changed since; give --overwrite or another --out"});
}

// A run that fails has evaluations, but no end that others could be compared with.
TEST_F(Cli, SweepLeavesOutFailedTrials) {
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model_text: "data { name: 'image' shape: [-1, 784] } "
      "data { name: 'label' shape: [-1, 1] dtype: INT64 } "
      "layer { fc { input: 'image' size: 10 output: 'logits' } } "
      "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
      "layer { mean { input: 'ce' output: 'loss' } } "
      "layer { accuracy { input: 'logits' label: 'label' output: 'acc' } }"
    train { digits { count: 200 } } test { digits { count: 100 } }
    metric { var: "acc" name: "accuracy" } optimizer { sgd { learning_rate: 0.1 } }
    batch_size: 50 max_iter: 8 test_interval: 1)");
  // The loss of the second trial becomes infinite; its accuracy was better before.
  Expect(
      "coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.0001,5e37 --metric=accuracy "
      "--out=s",
      0,
      {"trial 2: step 3, failed: ", "settings\n    1  ", "\ntrial 2 failed: ", "the loss is inf"});
  Expect("grep -c '\"accuracy\":0' s/trial_002/log.jsonl", 0, {"2"});
}

// The model of a job that quantises is the one with rounding: what the evaluations before say does
// not count.
TEST_F(Cli, SweepOfQuantisedTraining) {
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model_text: "data { name: 'image' shape: [-1, 784] } "
      "data { name: 'label' shape: [-1, 1] dtype: INT64 } "
      "layer { fc { input: 'image' size: 10 output: 'logits' } } "
      "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
      "layer { mean { input: 'ce' output: 'loss' } }"
    train { digits { count: 200 } } test { digits { count: 100 } } quantize { start_step: 4 }
    best { } optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 max_iter: 8 test_interval: 2)");
  const std::string sweep =
      "coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.001,0.1 --out=s ";
  Expect(sweep, 0, {"trial  best test/loss", "\n    2  "});
  const std::string early =
      "{\"type\":\"test\",\"set\":\"test\",\"step\":4,\"rows\":1,"
      "\"values\":{\"loss\":0.0125},\"time\":1}";
  const Result again = Shell("cd " + dir_ + " && sed -i '2i " + early +
                             "' s/trial_001/log.jsonl && " + sweep + "| grep -A1 '^trial'");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_NE(again.text.find("\n    2  "), std::string::npos) << again.text;
  EXPECT_EQ(again.text.find("0.0125"), std::string::npos) << again.text;
  // A trial that never rounds has no value; the rounds of --halving compare what there is.
  Expect("coracle sweep job.pbtxt --set=max_iter=4,8 --out=short", 0,
         {"trial 1: step 4, failed: no evaluation after quantize.start_step", "\n    2  "});
  // The same command finds both trials complete, and still says why one has no value.
  Expect("coracle sweep job.pbtxt --set=max_iter=4,8 --out=short && cat short/table.txt", 0,
         {"settings\n    2  ", "\ntrial 1 failed: no evaluation after quantize.start_step\n"});
  Expect("coracle sweep job.pbtxt --set=optimizer.sgd.learning_rate=0.001,0.1 --out=h --halving=2",
         0, {"trial 1: step 4, test/loss=", "trial 2: step 8, test/loss="});
  Expect("coracle sweep job.pbtxt --set=quantize.start_step=2,4 --out=q --halving=2", 2,
         {"--halving compares trials that quantise from the same step on"});
}

}  // namespace coracle::cli_train_test
