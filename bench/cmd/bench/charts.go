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

// Picture is one plot: a row for each label, or lines if there are no labels.
type Picture struct {
	Name, Title, Text string

	labels       []string
	series       []series
	xUnit, yUnit string
	logX, logY   bool
}

// series is a line, or marks in the rows for which it has a figure.
type series struct {
	name string
	at   plotter.XYs
}

// colour returns the colour of series i. The palette is by Okabe and Ito; colour-blind readers can
// distinguish its colours.
func colour(i int) color.Color {
	return []color.RGBA{
		{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255},
		{204, 121, 167, 255}, {86, 180, 233, 255},
		{213, 94, 0, 255},
	}[i%6]
}

// room is extra space for fonts wider than the measured one.
const room = "     "

// svg draws the picture in a font as wide as the common fonts of other systems.
func (p *Picture) svg() ([]byte, error) {
	c, height := plot.New(), 5*vg.Inch
	for _, f := range []*font.Font{
		&c.Title.TextStyle.Font, &c.X.Label.TextStyle.Font, &c.X.Tick.Label.Font,
		&c.Y.Label.TextStyle.Font, &c.Y.Tick.Label.Font, &c.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	c.Title.Text, c.X.Label.Text, c.Y.Label.Text = p.Title, p.xUnit, p.yUnit
	c.Legend.Padding, c.Legend.Top, c.Legend.Left = vg.Millimeter, true, p.labels == nil
	if p.labels != nil {
		c.Add(plotter.NewGrid())
		height = vg.Length(len(p.labels)*len(p.series))*0.2*vg.Inch + 1.2*vg.Inch
	}
	for i, s := range p.series {
		if err := s.draw(c, colour(i), p.labels != nil); err != nil {
			return nil, fmt.Errorf("plot %s: %w", s.name, err)
		}
	}
	if p.labels != nil {
		c.NominalY(p.labels...)
		c.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}}
		c.Y.Min, c.Y.Max = -1.5, float64(len(p.labels)) // leaves space for the legend
		c.X.Max *= 2                                    // for the figures at the right
	}
	for axis, log := range map[*plot.Axis]bool{&c.X: p.logX, &c.Y: p.logY} {
		if log {
			axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		} else if p.labels == nil {
			axis.Min = 0
		}
	}
	w, err := c.WriterTo(9*vg.Inch, height, "svg")
	if err != nil {
		return nil, fmt.Errorf("plot %s: %w", p.Title, err)
	}
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	family := []byte("Liberation Sans")
	return bytes.ReplaceAll(out.Bytes(), family,
		append(family, ",Arial,Helvetica,sans-serif"...)), err
}

// draw draws marks, and a line through them or the figure next to each. Rows have no bars, because
// a logarithmic axis has no zero to start from.
func (s series) draw(p *plot.Plot, c color.Color, rows bool) error {
	line, marks, err := plotter.NewLinePoints(s.at)
	if err != nil {
		return err
	}
	marks.GlyphStyle = draw.GlyphStyle{Color: c, Radius: 4, Shape: draw.CircleGlyph{}}
	p.Add(marks)
	p.Legend.Add(s.name+room, marks)
	if !rows {
		line.Color = c
		p.Add(line)
		return nil
	}
	texts := plotter.XYLabels{XYs: s.at}
	for _, at := range s.at {
		texts.Labels = append(texts.Labels, figure(at.X))
	}
	labels, err := plotter.NewLabels(texts)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Variant, labels.TextStyle[i].YAlign = "Sans", draw.YCenter
	}
	labels.Offset.X = 6
	p.Add(labels)
	return nil
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
