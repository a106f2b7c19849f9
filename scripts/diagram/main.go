package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := draw(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "diagram:", err)
		os.Exit(1)
	}
}

// The size of the picture.
const width, height = 900, 384

// style has the colors of light and dark pages, by the role of a shape.
const style = `
  text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
  .small { font-size: 12px; fill: #59636e }
  .head { font-weight: 600 }
  .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px }
  .middle { text-anchor: middle }
  .page { fill: #ffffff }
  .box { fill: #f6f8fa; stroke: #818b98 }
  .owner { fill: #ddf4ff; stroke: #0969da; stroke-width: 2 }
  .store { fill: #fff1e5; stroke: #bc4c00 }
  .synced { fill: #ffffff; stroke: #0969da }
  .pending { fill: #fff8c5; stroke: #9a6700 }
  .line { fill: none; stroke: #59636e; stroke-width: 1.5 }
  .gossip { fill: none; stroke: #818b98; stroke-width: 1.5; stroke-dasharray: 3 4 }
  .tip { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .page { fill: #0d1117 }
    .box { fill: #151b23; stroke: #656c76 }
    .owner { fill: #0c2d6b; stroke: #4493f8 }
    .store { fill: #3d1300; stroke: #db6d28 }
    .synced { fill: #0d1117; stroke: #4493f8 }
    .pending { fill: #4b2900; stroke: #d29922 }
    .line { stroke: #9198a1 }
    .gossip { stroke: #656c76 }
    .tip { fill: #9198a1 }
  }
`

// picture collects the shapes of an SVG.
type picture struct{ strings.Builder }

// box draws a rectangle with round corners.
func (p *picture) box(class string, x, y, w, h int) {
	fmt.Fprintf(p, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n",
		class, x, y, w, h)
}

// text draws a line of text, whose baseline begins at a point, or has its middle there.
func (p *picture) text(class string, x, y int, line string) {
	fmt.Fprintf(p, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, line)
}

// arrow draws a line along some points, such as "10,10 20,10", with a tip at its end.
func (p *picture) arrow(points string) {
	fmt.Fprintf(p, "<polyline class=\"line\" marker-end=\"url(#tip)\" points=%q/>\n", points)
}

// bracket draws a line along some points.
func (p *picture) bracket(points string) {
	fmt.Fprintf(p, "<polyline class=\"line\" points=%q/>\n", points)
}

// gossip draws a dotted line between two points.
func (p *picture) gossip(points string) {
	fmt.Fprintf(p, "<polyline class=\"gossip\" points=%q/>\n", points)
}

// draw writes the picture.
func draw(w io.Writer) error {
	var p picture
	fmt.Fprintf(&p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">
<title>Nodes decide in memory, and send counts to Redis in numbered batches</title>
<style>%s</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" `+
		`orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>
`, width, height, style)
	p.box("page", 0, 0, width, height)
	p.clients()
	p.nodes()
	p.redis()
	p.WriteString("</svg>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// clients draws the callers, which may ask any node.
func (p *picture) clients() {
	p.text("head", 20, 34, "Clients")
	for i, name := range []string{"HTTP, JSON", "Redis clients", "Envoy", "nginx, Caddy, Traefik",
		"Go, Python, Node.js"} {
		y := 52 + 44*i
		p.box("box", 20, y, 164, 32)
		p.text("middle", 102, y+21, name)
		p.bracket(fmt.Sprintf("184,%d 206,%d", y+16, y+16))
	}
	p.bracket("206,68 206,244")
	p.arrow("206,156 236,156 236,84 298,84")
	p.text("small", 216, 72, "to any node")
}

// nodes draws three nodes, of which the second owns the key of the example.
func (p *picture) nodes() {
	p.text("head", 300, 34, "Nodes")
	p.gossip("440,112 440,140")
	p.gossip("440,292 440,320")
	p.box("box", 300, 52, 280, 60)
	p.text("", 316, 78, "node a")
	p.text("small", 316, 98, "forwards to the owner of the key")
	p.box("owner", 300, 140, 280, 152)
	p.text("head", 316, 166, "node b, the owner of key ann")
	p.text("small", 316, 186, "decides in memory: 44 of 50 used")
	p.box("synced", 316, 200, 150, 48)
	p.text("mono middle", 391, 221, "synced 41")
	p.text("small middle", 391, 238, "Redis holds them")
	p.box("pending", 466, 200, 98, 48)
	p.text("mono middle", 515, 221, "pending 3")
	p.text("small middle", 515, 238, "not yet")
	p.text("small", 316, 274, "one bucket: a reader sees the sum, 44")
	p.box("box", 300, 320, 280, 48)
	p.text("", 316, 349, "node c")
	p.text("small", 370, 349, "takes over if b is gone")
	p.arrow("324,112 324,138")
	p.text("small", 334, 130, "in batches")
	p.text("small", 450, 130, "gossip")
}

// redis draws the store, and its exchange with the owner.
func (p *picture) redis() {
	p.text("head", 724, 34, "Redis")
	p.box("store", 724, 140, 156, 152)
	p.text("head middle", 802, 166, "one Hash per key")
	p.text("mono middle", 802, 192, "ann: 41 + 3")
	p.text("small middle", 802, 226, "last batch of")
	p.text("small middle", 802, 242, "each node")
	p.text("mono middle", 802, 266, "b: 17")
	p.arrow("580,190 722,190")
	p.text("small", 590, 164, "every 200 ms")
	p.text("mono", 590, 181, "batch 17: ann +3")
	p.arrow("724,236 582,236")
	p.text("mono", 590, 227, "ann is 44")
	p.text("small", 590, 258, "without a reply,")
	p.text("small", 590, 274, "batch 17 again:")
	p.text("small", 590, 290, "it counts once")
}
