// Products in blocks (blocked_product.cc), whatever the machine's rule uses them for.
#include <coracle/operators/kernels/blocked_product.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace coracle::blocked_product_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Floats between two pages that must not be touched, next to the first or the last page.
class GuardedFloats {
 public:
  GuardedFloats(int64_t count, bool at_end) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const size_t inside = (bytes + page - 1) / page * page;
    size_ = inside + 2 * page;
    pages_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(pages_, MAP_FAILED);
    EXPECT_EQ(mprotect(pages_, page, PROT_NONE), 0);
    EXPECT_EQ(mprotect(pages_ + page + inside, page, PROT_NONE), 0);
    data_ = reinterpret_cast<float*>(pages_ + page + (at_end ? inside - bytes : 0));
    count_ = count;
  }
  ~GuardedFloats() { munmap(pages_, size_); }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;

  float* data() { return data_; }
  float& operator[](int64_t i) { return data_[i]; }
  void Draw(std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::generate_n(data_, count_, [&] { return uniform(random); });
  }

 private:
  char* pages_;
  float* data_;
  size_t size_;
  int64_t count_;
};

// Elements from one row of a stored matrix to the next: its length and some more.
struct Case {
  int64_t m, n, k;
  bool transpose_b = false;
  float alpha = 1, beta = 0;
  int64_t more = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.m << " x " << c.n << " x " << c.k << (c.transpose_b ? ", B transposed," : ",")
             << " alpha " << c.alpha << " beta " << c.beta << " stride + " << c.more;
}

// The matrices of a case. With beta 0, C holds nans before.
struct Matrices {
  Case size;
  int64_t a_stride, b_stride, c_stride;
  GuardedFloats a, b, c;

  Matrices(const Case& s, bool at_end, std::mt19937& random)
      : size(s),
        a_stride(s.m + s.more),
        b_stride((s.transpose_b ? s.k : s.n) + s.more),
        c_stride(s.n + s.more),
        a((s.k - 1) * a_stride + s.m, at_end),
        b(((s.transpose_b ? s.n : s.k) - 1) * b_stride + (s.transpose_b ? s.k : s.n), at_end),
        c((s.m - 1) * c_stride + s.n, at_end) {
    a.Draw(random);
    b.Draw(random);
    c.Draw(random);
    if (s.beta != 0) return;
    for (int64_t i = 0; i < s.m; ++i) std::fill_n(c.data() + i * c_stride, s.n, kNan);
  }

  float& A(int64_t i, int64_t p) { return a[p * a_stride + i]; }
  float& B(int64_t p, int64_t j) {
    return b[size.transpose_b ? j * b_stride + p : p * b_stride + j];
  }

  BlockedProduct Product() {
    BlockedProduct p;
    p.m = size.m;
    p.n = size.n;
    p.k = size.k;
    p.a = a.data();
    p.a_row = a_stride;
    p.b = b.data();
    p.b_row = size.transpose_b ? 1 : b_stride;
    p.b_step = size.transpose_b ? b_stride : 1;
    p.c = c.data();
    p.c_row = c_stride;
    p.alpha = size.alpha;
    p.beta = size.beta;
    return p;
  }
  // One element, with a bound of the rounding error: each of the k additions rounds once.
  double Expected(int64_t i, int64_t j, double before, double* bound) {
    double sum = 0, all = 0;
    for (int64_t p = 0; p < size.k; ++p) {
      const double product = static_cast<double>(A(i, p)) * B(p, j);
      sum += product;
      all += std::fabs(product);
    }
    const double added = size.beta == 0 ? 0 : size.beta * before;
    *bound =
        6e-8 * (4 + static_cast<double>(size.k)) * (std::fabs(size.alpha) * all + std::fabs(added));
    return size.alpha * sum + added;
  }
};

void RequireProduct(const Case& s, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << s);
  Matrices x(s, random() % 2, random);
  const std::vector<float> before(x.c.data(), x.c.data() + (s.m - 1) * x.c_stride + s.n);
  std::vector<int> finished(static_cast<size_t>(s.m * s.n));
  RunBlockedProduct(x.Product(), [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int64_t i = row; i < row + rows; ++i) {
      for (int64_t j = column; j < column + columns; ++j)
        ++finished[static_cast<size_t>(i * s.n + j)];
    }
  });
  ASSERT_TRUE(std::all_of(finished.begin(), finished.end(), [](int times) { return times == 1; }));
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < x.c_stride; ++j) {
      const int64_t at = i * x.c_stride + j;
      if (at >= static_cast<int64_t>(before.size())) break;
      if (j >= s.n) {  // between the rows
        ASSERT_EQ(x.c[at], before[static_cast<size_t>(at)]);
        continue;
      }
      double bound = 0;
      const double expected = x.Expected(i, j, before[static_cast<size_t>(at)], &bound);
      ASSERT_NEAR(x.c[at], expected, bound) << "row " << i << ", column " << j;
    }
  }
}

TEST(BlockedProduct, SmallSizes) {
  std::mt19937 random(1);
  for (int64_t size = 1; size <= 70; ++size) {
    for (int variant = 0; variant < 2; ++variant) {
      Case c{size, static_cast<int64_t>(1 + random() % 70),
             static_cast<int64_t>(1 + random() % 70)};
      c.transpose_b = variant & 1;
      if (random() % 2) std::swap(c.m, c.n);
      if (random() % 2) c.more = static_cast<int64_t>(random() % 9);
      if (random() % 3 == 0) c.alpha = -0.75f;
      c.beta = random() % 2 ? 0 : random() % 2 ? 1 : 0.5f;
      RequireProduct(c, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Several blocks of rows, of columns and of products, which do not end where tiles do.
TEST(BlockedProduct, Blocks) {
  std::mt19937 random(2);
  for (int variant = 0; variant < 2; ++variant) {
    for (Case c : {Case{401, 67, 2003}, Case{31, 1201, 53}, Case{1, 1, 2000}, Case{13, 17, 521},
                   Case{211, 1033, 257}, Case{7, 16, 1024}}) {
      c.transpose_b = variant & 1;
      c.beta = random() % 2 ? 0.5f : 0;
      RequireProduct(c, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(BlockedProduct, NansAndInfinitiesComeOut) {
  std::mt19937 random(3);
  for (int variant = 0; variant < 2; ++variant) {
    for (float value : {kNan, kInfinity}) {
      const Case size{20, 37, 300, variant != 0};
      Matrices x(size, true, random);
      x.A(11, 299) = value;
      x.B(17, 36) = value;
      x.B(17, 3) = 0;
      RunBlockedProduct(x.Product(), [](int64_t, int64_t, int64_t, int64_t) {});
      for (int64_t i = 0; i < size.m; ++i) {
        for (int64_t j = 0; j < size.n; ++j)
          ASSERT_EQ(std::isfinite(x.c[i * size.n + j]), i != 11 && j != 36) << i << ' ' << j;
      }
    }
  }
}

// Whatever part of C is asked for, an element has the same bits.
TEST(BlockedProduct, TheCutDoesNotMatter) {
  std::mt19937 random(4);
  Matrices x({300, 700, 600}, false, random);
  const auto nothing = [](int64_t, int64_t, int64_t, int64_t) {};
  const BlockedProduct all = x.Product();
  RunBlockedProduct(all, nothing);
  const std::vector<float> whole(x.c.data(), x.c.data() + all.m * all.n);
  std::fill_n(x.c.data(), all.m * all.n, kNan);
  const int64_t rows[] = {0, 1, 47, 300}, columns[] = {0, 13, 16, 350, 700};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      BlockedProduct part = all;
      part.m = rows[i + 1] - rows[i];
      part.n = columns[j + 1] - columns[j];
      part.a += rows[i];
      part.b += columns[j];
      part.c += rows[i] * all.c_row + columns[j];
      RunBlockedProduct(part, nothing);
    }
  }
  EXPECT_EQ(0, std::memcmp(whole.data(), x.c.data(), whole.size() * sizeof(float)));
}

}  // namespace coracle::blocked_product_test
