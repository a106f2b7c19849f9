package cli_test

import (
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/testing/must"
)

func TestJoinPoints(t *testing.T) {
	tests := []struct {
		name   string
		points [][2]int64
		most   int
		want   []int64
		width  int64
	}{
		{"one", [][2]int64{{70, 5}}, 10, []int64{5}, 10},
		{"all fit", [][2]int64{{0, 1}, {10, 2}, {20, 3}}, 3, []int64{1, 2, 3}, 10},
		{"gaps are zero", [][2]int64{{0, 1}, {30, 3}}, 10, []int64{1, 0, 0, 3}, 10},
		{"joined from the end", [][2]int64{{0, 1}, {10, 2}, {20, 3}}, 2, []int64{1, 5}, 20},
		{"far apart", [][2]int64{{0, 1}, {1 << 60, 3}}, 2, []int64{1, 3}, 10 * (1<<60/10/2 + 1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, width := cli.JoinPoints(test.points, 10, test.most)
			if !slices.Equal(got, test.want) || width != test.width {
				t.Errorf("got %v of %d, want %v of %d", got, width, test.want, test.width)
			}
		})
	}
}

func TestPlotShowsTheSmallestCount(t *testing.T) {
	s := &server{answer: `{"key":"a","bucket_ms":1000,"points":[[0,1],[1000,0],[2000,4],[3000,8000],[4000,1]]}`}
	out, err := s.exec(t, "series", "a")
	must.Succeed(t, err)
	lines := strings.Split(out, "\n")
	if want := "         ┤▁ ▁█▁"; lines[8] != want {
		t.Errorf("lowest row %q, want %q of\n%s", lines[8], want, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("colours without a terminal: %q", out)
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB",
		1 << 30: "1 GiB", 1 << 52: "4096 TiB"} {
		if got := cli.FormatSize(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
