package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Series is one row of figures with a name. Figures that are not there are NaN.
type Series struct {
	Name string
	// X are the positions of Y in lines; bars have none.
	X, Y []float64
}

// colours are those of Okabe and Ito, in the order of use.
func colour(i int) string {
	return []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"}[i%6]
}

const (
	width  = 860.0
	margin = 16.0
	row    = 18.0 // height of one bar
)

// canvas collects the elements of a picture.
type canvas struct{ strings.Builder }

func (c *canvas) text(x, y float64, anchor, class, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="grid"/>`+"\n", x1, y1, x2, y2)
}

// legend writes the names of the series below the title and returns where the picture goes on.
func (c *canvas) legend(series []Series) float64 {
	x := margin
	for i, s := range series {
		fmt.Fprintf(c, `<rect x="%.1f" y="38" width="10" height="10" fill="%s"/>`+"\n", x, colour(i))
		c.text(x+15, 47, "start", "label", s.Name)
		x += 30 + 7*float64(len(s.Name))
	}
	return 64
}

const style = `<style>text{font:12px system-ui,sans-serif;fill:#444}.title{font-size:15px;font-weight:600}
.grid{stroke:#999;stroke-opacity:.35}@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>` + "\n"

// finish puts the frame around what was drawn.
func (c *canvas) finish(title string, height float64) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img"><title>%s</title>`+"\n",
		width, height, html.EscapeString(title))
	out.WriteString(style)
	fmt.Fprintf(&out, `<text x="%.1f" y="24" class="title">%s</text>`+"\n", margin, html.EscapeString(title))
	out.WriteString(c.String())
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

// scale maps figures to positions, by their logarithm if log.
type scale struct {
	low, high, from, to float64
	log                 bool
}

// newScale covers all figures that can be shown: a logarithmic one has no place for zero.
func newScale(values []float64, log bool) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), log: log}
	for _, v := range values {
		if math.IsNaN(v) || log && v <= 0 {
			continue
		}
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	if math.IsInf(s.low, 1) {
		s.low, s.high = 1, 10
	}
	if !log {
		s.low = 0
		s.high = max(s.high, math.SmallestNonzeroFloat32)
		return s
	}
	s.low, s.high = math.Pow(10, math.Floor(math.Log10(s.low))), math.Pow(10, math.Ceil(math.Log10(s.high)))
	if s.low == s.high {
		s.high *= 10
	}
	return s
}

func (s scale) at(v float64) float64 {
	share := (v - s.low) / (s.high - s.low)
	if s.log {
		share = math.Log(max(v, s.low)/s.low) / math.Log(s.high/s.low)
	}
	return s.from + share*(s.to-s.from)
}

// ticks are the powers of ten, or quarters.
func (s scale) ticks() (at []float64) {
	if s.log {
		for v := s.low; v <= s.high*1.001; v *= 10 {
			at = append(at, v)
		}
		return at
	}
	for i := range 5 {
		at = append(at, s.low+float64(i)/4*(s.high-s.low))
	}
	return at
}

// Figure writes a number as short as it can be told apart: 1.25M, 830k, 0.031.
func Figure(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
