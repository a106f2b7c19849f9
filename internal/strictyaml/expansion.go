package strictyaml

import "go.yaml.in/yaml/v4"

// maxExpanded bounds how many values the aliases of a text stand for together. Code that reads a
// document does so with the aliases expanded: a line with two aliases of the line above, forty
// times, would be 2⁴⁰ values. A text without aliases is bounded by its length alone.
const maxExpanded = 100_000

// expansion counts the values that the aliases of a text stand for.
type expansion struct {
	sizes    map[*Node]int // how many values a node with an anchor is, with its aliases expanded
	expanded int           // the number of values behind all aliases so far
	over     *Node         // the alias that was one too many, nil if there is none
}

// size returns the number of values in n with its aliases expanded. An anchor comes before its
// aliases, so its size is already known at each alias, and no node is visited twice.
func (x *expansion) size(n *Node) int {
	if x.over != nil {
		return 0
	}
	if n.Kind == yaml.AliasNode {
		size := x.sizes[n.Alias]
		if x.expanded += size; x.expanded > maxExpanded {
			x.over = n
		}
		return size
	}
	size := 1
	for _, part := range n.Content {
		size += x.size(part)
	}
	if n.Anchor != "" {
		x.sizes[n] = size
	}
	return size
}
