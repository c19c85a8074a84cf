#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::beam_search_decode_test {

struct StepOf {
  std::vector<int64_t> ids;
  std::vector<float> scores;
  LoD lod;
};

VarValues Arrays(const std::vector<StepOf>& steps) {
  TensorArray ids, scores;
  for (const StepOf& step : steps) {
    const auto num = static_cast<int64_t>(step.ids.size());
    Tensor id = Tensor::Of<int64_t>({num, 1}, step.ids);
    Tensor score = Tensor::Of<float>({num, 1}, step.scores);
    id.lod() = score.lod() = step.lod;
    ids.push_back(id);
    scores.push_back(score);
  }
  VarValues env;
  env["ids"] = ids;
  env["scores"] = scores;
  return env;
}

VarValues Decode(VarValues env, int32_t beams, int32_t end) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("out");
  block.Var("values");
  block.AppendOp("beam_search_decode", {{"Ids", {"ids"}}, {"Scores", {"scores"}}},
                 {{"SentenceIds", {"out"}}, {"SentenceScores", {"values"}}},
                 {{"beam_size", beams}, {"end_id", end}});
  Interpret(block, DefaultOps(), env);
  return env;
}

// Source 0 finds [1 3 0] and [2 0], which ended a step before; source 1 ends at the second step
// with [7 0] alone.
std::vector<StepOf> Example() {
  return {{{1, 2, 7}, {0.9f, 0.8f, 0.7f}, {{0, 1, 2}, {0, 2, 3}}},
          {{3, 0, 0}, {1.2f, 1.5f, 1.0f}, {{0, 2, 3}, {0, 1, 2, 3}}},
          {{0, 0}, {1.4f, 1.5f}, {{0, 2, 3}, {0, 1, 2, 2}}}};
}

TEST(BeamSearchDecode, WalksBack) {
  const VarValues env = Decode(Arrays(Example()), 2, 0);
  const auto& ids = std::get<Tensor>(env.at("out"));
  EXPECT_TRUE(BitEqual(ids, Tensor::Of<int64_t>({7}, {2, 0, 1, 3, 0, 7, 0})));
  EXPECT_EQ(ids.lod(), (LoD{{0, 2, 4}, {0, 2, 5, 7, 7}}));
  const auto& scores = std::get<Tensor>(env.at("values"));
  EXPECT_TRUE(BitEqual(scores, Tensor::Of<float>({7}, {0.8f, 1.5f, 0.9f, 1.2f, 1.4f, 0.7f, 1.0f})));
  EXPECT_EQ(scores.lod(), ids.lod());
}

// Two candidates of one prefix share its words.
TEST(BeamSearchDecode, SharedPrefix) {
  const VarValues env = Decode(
      Arrays({{{4, 5}, {1, 2}, {{0, 1}, {0, 2}}}, {{6, 7}, {3, 5}, {{0, 2}, {0, 0, 2}}}}), 2, 0);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("out")), Tensor::Of<int64_t>({4}, {5, 7, 5, 6})));
}

TEST(BeamSearchDecode, NothingFound) {
  const VarValues env = Decode(Arrays({{{}, {}, {{0, 0}, {0}}}}), 2, 0);
  EXPECT_EQ(std::get<Tensor>(env.at("out")).shape(), Shape{0});
  EXPECT_EQ(std::get<Tensor>(env.at("out")).lod(), (LoD{{0, 2}, {0, 0, 0}}));
}

TEST(BeamSearchDecode, Constraints) {
  const VarMeta rows{VarType::kLoDTensor, DType::kFloat32, {2, 1}, 0};
  ExpectRefused("beam_search_decode", {{"Ids", rows}, {"Scores", rows}},
                {{"beam_size", int32_t{1}}, {"end_id", int32_t{0}}}, "beam_search_decode.C1");
  const auto error = [](const VarValues& env) {
    try {
      Decode(env, 2, 0);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("no error");
  };
  ExpectConstraint(error(Arrays({})), "beam_search_decode.C2");
  // One level of LoD; more candidates than the next step has prefixes; other sources.
  for (const LoD& lod : {LoD{{0, 2}}, LoD{{0, 2}, {0, 1, 2}}, LoD{{0, 1, 3, 3}, {0, 1, 2, 2}}}) {
    std::vector<StepOf> steps = Example();
    steps[2].lod = lod;
    ExpectConstraint(error(Arrays(steps)), "beam_search_decode.C2");
  }
  VarValues env = Arrays(Example());
  std::get<TensorArray>(env["scores"]).resize(2);
  ExpectConstraint(error(env), "beam_search_decode.C2");
}
}  // namespace coracle::beam_search_decode_test
