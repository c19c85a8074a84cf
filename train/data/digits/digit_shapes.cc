#include <coracle/train/data/digits/digit_shapes.h>

namespace coracle::inline internal {
namespace {

constexpr bool kCorner = true;

constexpr PenPoint kZeroRound[] = {{.55f, .02f}, {.25f, .12f}, {.12f, .5f},  {.25f, .88f},
                                   {.52f, .98f}, {.78f, .85f}, {.88f, .48f}, {.75f, .13f},
                                   {.5f, .02f},  {.38f, .06f}};
constexpr PenPoint kZeroNarrow[] = {{.62f, .04f}, {.38f, .08f}, {.25f, .5f},
                                    {.32f, .9f},  {.52f, .98f}, {.7f, .82f},
                                    {.77f, .5f},  {.68f, .12f}, {.55f, .03f}};

constexpr PenPoint kOnePlain[] = {{.5f, 0}, {.5f, .5f}, {.5f, 1}};
constexpr PenPoint kOneFlag[] = {
    {.28f, .27f}, {.42f, .15f}, {.55f, 0, kCorner}, {.54f, .5f}, {.54f, 1}};
constexpr PenPoint kOneBase[] = {{.28f, 1}, {.54f, .99f}, {.8f, .99f}};

constexpr PenPoint kTwoPlain[] = {{.14f, .26f},          {.28f, .06f}, {.55f, 0},
                                  {.8f, .16f},           {.76f, .42f}, {.48f, .72f},
                                  {.12f, .97f, kCorner}, {.5f, .96f},  {.9f, .95f}};
constexpr PenPoint kTwoLoop[] = {{.16f, .2f},  {.4f, .01f},  {.74f, .1f}, {.74f, .4f},
                                 {.45f, .74f}, {.2f, .95f},  {.1f, .85f}, {.25f, .77f},
                                 {.5f, .88f},  {.72f, .97f}, {.92f, .88f}};

constexpr PenPoint kThreeRound[] = {{.17f, .14f},          {.42f, .0f},  {.75f, .1f},  {.74f, .34f},
                                    {.42f, .47f, kCorner}, {.77f, .57f}, {.83f, .82f}, {.5f, 1},
                                    {.13f, .87f}};
constexpr PenPoint kThreeFlat[] = {{.16f, .04f},         {.5f, .03f},  {.8f, .03f, kCorner},
                                   {.46f, .4f, kCorner}, {.76f, .52f}, {.84f, .76f},
                                   {.55f, .99f},         {.12f, .9f}};

constexpr PenPoint kFourOpen[] = {
    {.26f, 0}, {.2f, .28f}, {.13f, .56f, kCorner}, {.5f, .55f}, {.9f, .53f}};
constexpr PenPoint kFourOpenDown[] = {{.72f, .08f}, {.69f, .5f}, {.65f, 1}};
constexpr PenPoint kFourClosed[] = {
    {.66f, .0f}, {.36f, .32f}, {.08f, .65f, kCorner}, {.5f, .65f}, {.94f, .65f}};
constexpr PenPoint kFourClosedDown[] = {{.67f, 0}, {.67f, .5f}, {.66f, 1}};

constexpr PenPoint kFivePlain[] = {{.82f, .03f},         {.5f, .03f}, {.26f, .04f, kCorner},
                                   {.2f, .43f, kCorner}, {.5f, .36f}, {.83f, .55f},
                                   {.8f, .85f},          {.46f, 1},   {.12f, .9f}};
constexpr PenPoint kFiveBody[] = {{.27f, .06f}, {.2f, .45f, kCorner}, {.52f, .4f},
                                  {.82f, .6f},  {.72f, .9f},          {.42f, 1},
                                  {.14f, .93f}};
constexpr PenPoint kFiveBar[] = {{.27f, .06f}, {.55f, .04f}, {.88f, .0f}};

constexpr PenPoint kSixPlain[] = {{.72f, .02f}, {.4f, .2f},  {.2f, .55f}, {.2f, .84f},  {.48f, 1},
                                  {.78f, .86f}, {.76f, .6f}, {.5f, .5f},  {.26f, .66f}, {.2f, .8f}};
constexpr PenPoint kSixStraight[] = {{.45f, .0f},  {.26f, .35f}, {.18f, .72f},
                                     {.34f, .97f}, {.64f, .97f}, {.8f, .75f},
                                     {.6f, .55f},  {.36f, .6f},  {.2f, .74f}};

constexpr PenPoint kSevenPlain[] = {
    {.1f, .05f}, {.5f, .04f}, {.88f, .03f, kCorner}, {.6f, .4f}, {.38f, 1}};
constexpr PenPoint kSevenSerif[] = {{.12f, .2f},           {.14f, .05f, kCorner}, {.5f, .05f},
                                    {.86f, .04f, kCorner}, {.62f, .5f},           {.5f, 1}};
constexpr PenPoint kSevenBar[] = {{.3f, .5f}, {.52f, .49f}, {.78f, .47f}};

constexpr PenPoint kEightCrossed[] = {{.76f, .14f}, {.48f, 0},    {.22f, .16f}, {.36f, .4f},
                                      {.66f, .56f}, {.82f, .8f},  {.5f, 1},     {.18f, .82f},
                                      {.32f, .58f}, {.62f, .42f}, {.8f, .2f},   {.66f, .04f}};
constexpr PenPoint kEightUpper[] = {{.5f, .46f}, {.26f, .34f}, {.28f, .1f}, {.5f, .0f},
                                    {.72f, .1f}, {.74f, .34f}, {.5f, .46f}};
constexpr PenPoint kEightLower[] = {{.5f, .46f}, {.2f, .6f}, {.2f, .88f}, {.5f, 1},
                                    {.8f, .88f}, {.8f, .6f}, {.5f, .46f}};

constexpr PenPoint kNineStraight[] = {{.8f, .16f},         {.52f, .0f},  {.2f, .16f},
                                      {.24f, .42f},        {.54f, .5f},  {.76f, .34f},
                                      {.8f, .1f, kCorner}, {.76f, .55f}, {.68f, 1}};
constexpr PenPoint kNineCurved[] = {{.8f, .2f},   {.54f, .01f}, {.22f, .15f},          {.24f, .42f},
                                    {.55f, .5f},  {.78f, .35f}, {.81f, .14f, kCorner}, {.82f, .6f},
                                    {.64f, .93f}, {.4f, 1},     {.18f, .92f}};

constexpr PenStroke kStrokes0A[] = {kZeroRound}, kStrokes0B[] = {kZeroNarrow};
constexpr PenStroke kStrokes1A[] = {kOnePlain}, kStrokes1B[] = {kOneFlag},
                    kStrokes1C[] = {kOneFlag, kOneBase};
constexpr PenStroke kStrokes2A[] = {kTwoPlain}, kStrokes2B[] = {kTwoLoop};
constexpr PenStroke kStrokes3A[] = {kThreeRound}, kStrokes3B[] = {kThreeFlat};
constexpr PenStroke kStrokes4A[] = {kFourOpen, kFourOpenDown},
                    kStrokes4B[] = {kFourClosed, kFourClosedDown};
constexpr PenStroke kStrokes5A[] = {kFivePlain}, kStrokes5B[] = {kFiveBody, kFiveBar};
constexpr PenStroke kStrokes6A[] = {kSixPlain}, kStrokes6B[] = {kSixStraight};
constexpr PenStroke kStrokes7A[] = {kSevenPlain}, kStrokes7B[] = {kSevenSerif},
                    kStrokes7C[] = {kSevenPlain, kSevenBar};
constexpr PenStroke kStrokes8A[] = {kEightCrossed}, kStrokes8B[] = {kEightUpper, kEightLower};
constexpr PenStroke kStrokes9A[] = {kNineStraight}, kStrokes9B[] = {kNineCurved};

constexpr DigitStyle kStyles0[] = {kStrokes0A, kStrokes0B};
constexpr DigitStyle kStyles1[] = {kStrokes1A, kStrokes1B, kStrokes1C};
constexpr DigitStyle kStyles2[] = {kStrokes2A, kStrokes2B};
constexpr DigitStyle kStyles3[] = {kStrokes3A, kStrokes3B};
constexpr DigitStyle kStyles4[] = {kStrokes4A, kStrokes4B};
constexpr DigitStyle kStyles5[] = {kStrokes5A, kStrokes5B};
constexpr DigitStyle kStyles6[] = {kStrokes6A, kStrokes6B};
constexpr DigitStyle kStyles7[] = {kStrokes7A, kStrokes7B, kStrokes7C};
constexpr DigitStyle kStyles8[] = {kStrokes8A, kStrokes8B};
constexpr DigitStyle kStyles9[] = {kStrokes9A, kStrokes9B};

constexpr std::span<const DigitStyle> kAllStyles[] = {kStyles0, kStyles1, kStyles2, kStyles3,
                                                      kStyles4, kStyles5, kStyles6, kStyles7,
                                                      kStyles8, kStyles9};

}  // namespace

std::span<const DigitStyle> DigitStyles(int digit) { return kAllStyles[digit]; }

}  // namespace coracle::inline internal
