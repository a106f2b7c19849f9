package plot

import (
	"fmt"
	"math"
	"strings"
)

const labelWidth = 220.0

// Bars draws, for each label, one horizontal bar of every series. A logarithmic axis begins at the power of ten below the
// smallest figure.
func Bars(title, unit string, labels []string, series []Series, log bool) []byte {
	var c canvas
	top := c.legend(series)
	var all []float64
	for _, s := range series {
		all = append(all, s.Y...)
	}
	sc := newScale(all, log)
	sc.from, sc.to = labelWidth, width-90
	group := row*float64(len(series)) + 8
	bottom := top + group*float64(len(labels))
	for _, t := range sc.ticks() {
		c.line(sc.at(t), top, sc.at(t), bottom)
		c.text(sc.at(t), bottom+16, "middle", "label", Figure(t))
	}
	c.text((sc.from+sc.to)/2, bottom+34, "middle", "label", unit)
	for i, label := range labels {
		y := top + group*float64(i)
		c.text(labelWidth-8, y+group/2, "end", "label", label)
		for k, s := range series {
			if math.IsNaN(s.Y[i]) {
				continue
			}
			end := max(sc.at(s.Y[i]), sc.from+1)
			fmt.Fprintf(&c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", sc.from, y, end-sc.from, row-3, colour(k))
			c.text(end+5, y+row-6, "start", "label", Figure(s.Y[i]))
			y += row
		}
	}
	return c.finish(title, bottom+46)
}

// Lines draws every series as a line with marks.
func Lines(title, xUnit, yUnit string, series []Series, logX, logY bool) []byte {
	const height = 380.0
	var c canvas
	top := c.legend(series)
	var xs, ys []float64
	for _, s := range series {
		xs, ys = append(xs, s.X...), append(ys, s.Y...)
	}
	x, y := newScale(xs, logX), newScale(ys, logY)
	x.from, x.to = 90, width-40
	y.from, y.to = height-60, top+20
	for _, t := range x.ticks() {
		c.line(x.at(t), y.from, x.at(t), y.to)
		c.text(x.at(t), y.from+18, "middle", "label", Figure(t))
	}
	for _, t := range y.ticks() {
		c.line(x.from, y.at(t), x.to, y.at(t))
		c.text(x.from-8, y.at(t)+4, "end", "label", Figure(t))
	}
	c.text((x.from+x.to)/2, height-20, "middle", "label", xUnit)
	c.text(margin, top+6, "start", "label", yUnit)
	for i, s := range series {
		var points []string
		for k := range s.X {
			if math.IsNaN(s.Y[k]) || logY && s.Y[k] <= 0 {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(s.X[k]), y.at(s.Y[k])))
			fmt.Fprintf(&c, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(s.X[k]), y.at(s.Y[k]), colour(i))
		}
		fmt.Fprintf(&c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour(i))
	}
	return c.finish(title, height)
}
