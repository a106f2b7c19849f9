package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"

	"twotier/bench/plot"
)

// count parses a picture and counts its elements.
func count(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	n := make(map[string]int)
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			n[e.Name.Local]++
			for _, a := range e.Attr {
				if a.Value == "NaN" || a.Value == "+Inf" || a.Value == "-Inf" {
					t.Errorf("%s has %s=%s", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestBarsDrawWhatIsThere(t *testing.T) {
	for _, log := range []bool{false, true} {
		n := count(t, plot.Bars("a <title>", "per second", []string{"x & y", "z"},
			[]plot.Series{{Name: "one", Y: []float64{1, 2000}}, {Name: "two", Y: []float64{math.NaN(), 0}}}, log))
		if n["rect"] != 3+2 { // bars and the legend's
			t.Errorf("log %t: %v", log, n)
		}
	}
}

func TestLinesLeaveOutWhatHasNoPlace(t *testing.T) {
	n := count(t, plot.Lines("t", "x", "y", []plot.Series{{Name: "s", X: []float64{1, 10, 100}, Y: []float64{5, 0, math.NaN()}}}, true, true))
	if n["circle"] != 1 || n["polyline"] != 1 {
		t.Errorf("%v", n)
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{1_250_000: "1.25M", 830_400: "830k", 0.0314159: "0.0314", 0: "0", 2e9: "2G"} {
		if got := plot.Figure(v); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
}
