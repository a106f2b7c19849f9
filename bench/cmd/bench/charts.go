package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one named row of figures. Missing figures are 0.
type Series struct {
	Name string
	// X holds the positions of Y in lines. Rows have none.
	X, Y []float64
}

// colour returns the colour of series i. The palette is that of Okabe and Ito, which colour-blind
// readers can tell apart.
func colour(i int) color.Color {
	return []color.RGBA{
		{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255},
		{204, 121, 167, 255}, {86, 180, 233, 255},
		{213, 94, 0, 255},
	}[i%6]
}

const (
	chartWidth = 9 * vg.Inch
	// rowHeight is that of one series in a row.
	rowHeight = 0.2 * vg.Inch
	// room is extra space for fonts that are wider than the one measured.
	room = "     "
)

// newPlot returns a plot in a font whose widths match those of common fonts on other systems.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font,
		&p.Y.Label.TextStyle.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Title.Text, p.Legend.Padding = title, vg.Millimeter
	return p
}

// logarithmic makes an axis logarithmic.
func logarithmic(axis *plot.Axis) {
	axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

// rows draws one row per label, with a mark for the figure of every series and the figure next to
// it. There are no bars, because a logarithmic axis has no zero to start from.
func rows(title, unit string, labels []string, series []Series) ([]byte, error) {
	p := newPlot(title)
	p.X.Label.Text = unit
	logarithmic(&p.X)
	p.Add(plotter.NewGrid())
	names := make([]string, len(labels))
	for i, label := range labels {
		names[len(labels)-1-i] = label + room
	}
	for i, s := range series {
		var at plotter.XYs
		texts := make([]string, 0, len(s.Y))
		for k, v := range s.Y {
			if v > 0 {
				y := float64(len(labels)-1-k) - float64(i)/float64(len(series)+1)
				at, texts = append(at, plotter.XY{X: v, Y: y}), append(texts, figure(v))
			}
		}
		if err := addMarks(p, s.Name, colour(i), at, texts); err != nil {
			return nil, err
		}
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -1, float64(len(labels))+0.5 // leaves space for the legend above the rows
	p.X.Max *= 2                                    // for the figures at the right
	p.Legend.Top = true
	return svg(p, vg.Length(len(labels)*len(series))*rowHeight+1.2*vg.Inch)
}

func addMarks(p *plot.Plot, name string, c color.Color, at plotter.XYs, texts []string) error {
	marks, err := plotter.NewScatter(at)
	if err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	marks.GlyphStyle = draw.GlyphStyle{Color: c, Radius: 4, Shape: draw.CircleGlyph{}}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: texts})
	if err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Variant = "Sans"
		labels.TextStyle[i].YAlign = draw.YCenter
	}
	labels.Offset.X = 6
	p.Add(marks, labels)
	p.Legend.Add(name+room, marks)
	return nil
}

// lines draws every series as a line with marks.
func lines(title, xUnit, yUnit string, series []Series, logX, logY bool) ([]byte, error) {
	p := newPlot(title)
	p.X.Label.Text, p.Y.Label.Text = xUnit, yUnit
	for axis, log := range map[*plot.Axis]bool{&p.X: logX, &p.Y: logY} {
		if log {
			logarithmic(axis)
		} else {
			axis.Min = 0
		}
	}
	for i, s := range series {
		var at plotter.XYs
		for k, y := range s.Y {
			if y > 0 || !logY {
				at = append(at, plotter.XY{X: s.X[k], Y: y})
			}
		}
		line, points, err := plotter.NewLinePoints(at)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", s.Name, err)
		}
		line.Color, points.Color = colour(i), colour(i)
		p.Add(line, points)
		p.Legend.Add(s.Name+room, line)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return svg(p, 5*vg.Inch)
}

func svg(p *plot.Plot, height vg.Length) ([]byte, error) {
	w, err := p.WriterTo(chartWidth, height, "svg")
	if err != nil {
		return nil, fmt.Errorf("plot %s: %w", p.Title.Text, err)
	}
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	family := []byte("Liberation Sans")
	return bytes.ReplaceAll(out.Bytes(), family,
		append(family, ",Arial,Helvetica,sans-serif"...)), err
}

// figure formats a number with a few significant digits: 1.25M, 830k, 0.031.
func figure(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return fmt.Sprintf("%.3g%s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}
