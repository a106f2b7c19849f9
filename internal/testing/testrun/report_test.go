package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

const events = `
{"Action":"start","Package":"x/a"}
{"Action":"output","Package":"x/a","Test":"TestOK","Output":"=== RUN   TestOK\n"}
{"Action":"output","Package":"x/a","Test":"TestOK","Output":"noise\n"}
{"Action":"pass","Package":"x/a","Test":"TestOK","Elapsed":0.1}
{"Action":"output","Package":"x/a","Test":"TestSkip/sub","Output":"=== RUN   TestSkip/sub\n"}
{"Action":"output","Package":"x/a","Test":"TestSkip/sub","Output":"    a_test.go:7: no IPv6: here\n"}
{"Action":"output","Package":"x/a","Test":"TestSkip/sub","Output":"    --- SKIP: TestSkip/sub (0.00s)\n"}
{"Action":"skip","Package":"x/a","Test":"TestSkip/sub"}
{"Action":"output","Package":"x/a","Output":"PASS\n"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.1s\n"}
{"Action":"pass","Package":"x/a","Elapsed":0.1}
{"Action":"output","Package":"x/b","Test":"TestBad","Output":"    b_test.go:9: wrong\n"}
{"Action":"fail","Package":"x/b","Test":"TestBad"}
{"Action":"output","Package":"x/b","Test":"TestStuck","Output":"panic: stuck\n"}
{"Action":"output","Package":"x/b","Output":"FAIL\tx/b\t0.2s\n"}
{"Action":"fail","Package":"x/b","Elapsed":0.2}
{"Action":"build-output","ImportPath":"x/c","Output":"c.go:1: syntax error\n"}
{"Action":"output","Package":"x/d","Output":"?   \tx/d\t[no test files]\n"}
{"Action":"skip","Package":"x/d"}
`

func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	must.Succeed(t, r.read(strings.NewReader(events)))
	if want := []skip{{"x/a", "TestSkip/sub", "no IPv6: here"}}; !slices.Equal(r.skips, want) {
		t.Errorf("skips are %v, want %v", r.skips, want)
	}
	want := []string{"ok  \tx/a\t0.1s\n", "FAIL\tx/b\t0.2s\n", "?   \tx/d\t[no test files]\n"}
	if !slices.Equal(r.results, want) {
		t.Errorf("results are %q, want %q", r.results, want)
	}
	for _, part := range []string{"b_test.go:9: wrong\n", "panic: stuck\n",
		"c.go:1: syntax error\n", "pass: x/a"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in %q", part, out.String())
		}
	}
	if strings.Contains(out.String(), "noise") {
		t.Error("tests that pass are printed")
	}
}

func TestJudge(t *testing.T) {
	skips := []skip{{"x/a", "TestA", "no IPv6 here"}}
	if err := judge(skips, nil); err == nil {
		t.Error("a skip that is on no list passes")
	}
	if err := judge(skips, []*regexp.Regexp{regexp.MustCompile(`TestA: no IPv6`)}); err != nil {
		t.Error(err)
	}
}
