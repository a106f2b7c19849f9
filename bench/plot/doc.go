// Package plot draws the few kinds of pictures that the report has, as SVG. A library would bring fonts, PDF and raster
// images along; this is text. Colours are told apart by those who don't see all of them, and the pictures read on light and
// dark backgrounds.
package plot
