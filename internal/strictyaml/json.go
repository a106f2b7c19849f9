package strictyaml

import (
	"encoding/json"
	"errors"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Bounds of a value as JSON, in bytes and in levels: aliases of aliases can stand for any amount of
// text.
const (
	maxJSON  = 4 << 20
	maxDepth = 100
)

var errTooLong = errors.New("it is too long or too deep as JSON: its aliases stand for too much")

// AppendJSON appends n as JSON: a scalar that JSON spells the same stays a number, true, false or
// null, and every other scalar becomes a string of its text. Keys keep their order.
func AppendJSON(b []byte, n *Node) ([]byte, error) { return appendJSON(b, n, maxDepth) }

// AppendJSONList appends values as a JSON list.
func AppendJSONList(b []byte, items []*Node) ([]byte, error) {
	return appendList(b, items, maxDepth)
}

// appendJSON appends a value of at most depth levels.
func appendJSON(b []byte, n *Node, depth int) ([]byte, error) {
	if len(b) > maxJSON || depth == 0 {
		return b, errTooLong
	}
	switch n = Resolve(n); n.Kind {
	case yaml.MappingNode:
		return appendObject(b, n, depth)
	case yaml.SequenceNode:
		return appendList(b, n.Content, depth)
	}
	return append(b, jsonScalar(n)...), nil
}

func appendList(b []byte, items []*Node, depth int) (_ []byte, err error) {
	b = append(b, '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, item, depth-1); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendObject(b []byte, n *Node, depth int) (_ []byte, err error) {
	b = append(b, '{')
	for pair := range slices.Chunk(n.Content, 2) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(b, quote(Resolve(pair[0]).Value)...), ':')
		if b, err = appendJSON(b, pair[1], depth-1); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// jsonScalar returns a scalar as JSON.
func jsonScalar(n *Node) []byte {
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		return []byte("null")
	case (tag == "!!int" || tag == "!!float" || tag == "!!bool") && json.Valid([]byte(n.Value)):
		return []byte(n.Value)
	}
	return quote(n.Value)
}

// quote returns a string as JSON.
func quote(text string) []byte {
	quoted, _ := json.Marshal(text) // a string always marshals
	return quoted
}
