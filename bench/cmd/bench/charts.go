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
)

// Series is one row of figures with a name. Figures that are not there are 0.
type Series struct {
	Name string
	// X are the positions of Y in lines; bars have none.
	X, Y []float64
}

// colour is that of series i: those of Okabe and Ito can be told apart by those who don't see all
// of them.
func colour(i int) color.Color {
	return []color.RGBA{
		{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255},
		{204, 121, 167, 255}, {86, 180, 233, 255},
		{213, 94, 0, 255},
	}[i%6]
}

const (
	chartWidth = 9 * vg.Inch
	barWidth   = 13 * vg.Inch / 72
	// room is for fonts that are wider than the one that was measured.
	room = "     "
)

// newPlot is written in a font whose widths those of other systems have as well.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font,
		&p.Y.Label.TextStyle.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Title.Text = title
	return p
}

// bars draws, for each label, one horizontal bar of every series. A logarithmic axis begins at the
// power of ten below the smallest figure.
func bars(title, unit string, labels []string, series []Series, log bool) ([]byte, error) {
	p := newPlot(title)
	p.X.Label.Text = unit
	position := func(v float64) float64 { return v }
	if log {
		lowest := math.Inf(1)
		for _, s := range series {
			for _, v := range s.Y {
				if v > 0 {
					lowest = min(lowest, math.Floor(math.Log10(v)))
				}
			}
		}
		position = func(v float64) float64 { return max(math.Log10(v)-lowest, 0) }
		p.X.Tick.Marker = powers(lowest)
	}
	p.X.Min = 0
	for i, s := range series {
		offset := barWidth * vg.Length(float64(len(series)-1)/2-float64(i))
		if err := addBars(p, s, colour(i), offset, position); err != nil {
			return nil, err
		}
	}
	names := reversed(labels)
	for i := range names {
		names[i] += room
	}
	p.NominalY(names...)
	p.Y.Max = float64(len(labels)) + 0.5 // the legend lies above the bars
	p.Y.Tick.Length, p.Y.Tick.LineStyle.Width = barWidth, 0
	p.Legend.Top = true
	return svg(p, vg.Length(len(labels)*len(series))*barWidth*1.35+1.2*vg.Inch)
}

// addBars adds one series, the first figure on top, each with its value beside it.
func addBars(
	p *plot.Plot, s Series, c color.Color, offset vg.Length, position func(float64) float64,
) error {
	values := make(plotter.Values, len(s.Y))
	labels := plotter.XYLabels{}
	for i, v := range reversed(s.Y) {
		if v > 0 {
			values[i] = position(v)
			labels.XYs = append(labels.XYs, plotter.XY{X: values[i], Y: float64(i)})
			labels.Labels = append(labels.Labels, " "+figure(v))
			p.X.Max = max(p.X.Max, values[i]*1.08)
		}
	}
	chart, err := plotter.NewBarChart(values, barWidth)
	if err != nil {
		return fmt.Errorf("plot %s: %w", s.Name, err)
	}
	chart.Horizontal, chart.Color, chart.Offset, chart.LineStyle.Width = true, c, offset, 0
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return fmt.Errorf("plot %s: %w", s.Name, err)
	}
	for i := range text.TextStyle {
		text.TextStyle[i].Font.Variant = "Sans"
	}
	text.Offset.Y = offset - barWidth/4
	p.Add(chart, text)
	p.Legend.Add(s.Name+room, chart)
	return nil
}

// lines draws every series as a line with marks.
func lines(title, xUnit, yUnit string, series []Series, logX, logY bool) ([]byte, error) {
	p := newPlot(title)
	p.X.Label.Text, p.Y.Label.Text = xUnit, yUnit
	for _, axis := range []struct {
		log bool
		*plot.Axis
	}{{logX, &p.X}, {logY, &p.Y}} {
		if axis.log {
			axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
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

// powers marks powers of ten on an axis of logarithms that begins at one of them.
type powers float64

// Ticks implements plot.Ticker.
func (lowest powers) Ticks(from, to float64) (ticks []plot.Tick) {
	for at := math.Ceil(from); at <= to; at++ {
		ticks = append(ticks, plot.Tick{Value: at, Label: figure(math.Pow(10, at+float64(lowest)))})
	}
	return ticks
}

func reversed[T any](of []T) []T {
	out := make([]T, len(of))
	for i, v := range of {
		out[len(of)-1-i] = v
	}
	return out
}

// figure writes a number as short as it can be told apart: 1.25M, 830k, 0.031.
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
