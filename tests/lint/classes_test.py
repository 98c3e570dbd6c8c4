#!/usr/bin/env python3
"""What classes.py counts."""
import sys
import unittest

sys.dont_write_bytecode = True
from classes import MOST_FIELDS, MOST_FUNCTIONS, classes_in


def counted(text):
    return [(c.name, c.functions, c.fields) for c in classes_in(text)]


class Counts(unittest.TestCase):
    def test_functions_of_every_kind(self):
        self.assertEqual(counted("""
            class A : public B<int>, private C {
             public:
              explicit A(int x) : B<int>(x), C{x}, a_(x) { if (x) { y(); } }
              A(const A&) = delete;
              ~A() override = default;
              void f() const;                                  // f(); in a comment
              virtual int g(std::function<void(int)> h = {}) = 0;
              template <class T, class U> requires std::integral<T> T t(U&& u) { return u < 1 ? T{} : u; }
              bool operator()(int) const { return true; }
              friend bool operator==(const A&, const A&) = default;
              bool operator<(const A& o) const { return a_ < o.a_; }
              explicit operator bool() const noexcept { return a_ > 0; }
              [[nodiscard]] auto h() const -> std::vector<int> { return {1, 2}; }
              static int s();
              std::array<int, 2> both() const;
             private:
              int a_;
            };"""), [("A", 10, 1)])

    def test_fields_of_every_kind(self):
        self.assertEqual(counted("""
            namespace n::m {
            class A {
              int a_ = 0, b_{1}, c_[2];
              std::map<std::string, std::function<void(int, int)>> d_;
              static constexpr int kOne = 1;
              static inline std::atomic<int> count_{0};
              alignas(64) std::atomic<int> e_{0};
              void (*f_)(int, int) = nullptr;
              using Clock = std::chrono::steady_clock;
              enum class Kind { x, y } g_ = Kind::x;
              std::function<int(int)> h_ = [](int x) { return x; };
              bool less_ = std::is_same_v<int, long>;
              decltype(a_) k_;
              mutable std::mutex m_;
              class Forward;
              struct { int x, y; } point_;
              const char* text_ = "a; b; c";
            };
            }"""), [("A", 0, 13), ("A::(unnamed)", 0, 2)])

    def test_nested_classes_count_for_themselves(self):
        self.assertEqual(counted("class A { struct B { int x; void f(); }; B b_; class C final : D { int y; }; };"),
                         [("A", 0, 1), ("A::B", 1, 1), ("A::C", 0, 1)])

    def test_bodies_and_macros_are_passed_over(self):
        self.assertEqual(counted("""
            #define CLASS class X { int a; \\
                                    int b; };
            BEFORE_NAMESPACE();
            void f() { struct Local { int a; }; auto l = [] { return 1; }; }
            int n = 1'000'000;
            class A { char c_ = ';'; int d_ = '}'; };"""), [("A", 0, 2)])

    def test_limits(self):
        def excess(kind, functions, fields, extra=""):
            body = "".join(f"void f{i}();" for i in range(functions)) + "".join(f"int a{i};" for i in range(fields))
            return len(classes_in(f"{kind} A {{ {body} {extra} }};")[0].excess())

        self.assertEqual(excess("class", MOST_FUNCTIONS, MOST_FIELDS), 0)
        self.assertEqual(excess("class", MOST_FUNCTIONS + 1, 0), 1)
        self.assertEqual(excess("class", MOST_FUNCTIONS + 1, MOST_FIELDS + 1), 2)
        self.assertEqual(excess("struct", 0, MOST_FIELDS + 1), 0)
        self.assertEqual(excess("struct", 0, MOST_FIELDS + 1, "private: int b;"), 1)
        self.assertEqual(excess("struct", MOST_FUNCTIONS + 1, 0), 1)


if __name__ == "__main__":
    unittest.main()
