// Command diagram draws the architecture of twotier as docs/architecture.svg, in light and in dark
// colors. Run it in the root of the module:
//
//	go run ./scripts/diagram > docs/architecture.svg
package main
