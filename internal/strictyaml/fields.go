package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// Fields are the keys of a mapping, each with what reads its value. Nil leaves a value to the
// caller.
type Fields map[string]Value

// Value reads the value of a key, whose name in errors is name.
type Value func(r *Reader, name string, n *Node)

// As reads a value whose name in errors is not its key.
func (v Value) As(name string) Value {
	return func(r *Reader, _ string, n *Node) { v(r, name, n) }
}

// Set sets to to what read makes of a node. It is for values that report their own mistakes.
func Set[T any](to *T, read func(n *Node) T) Value {
	return func(_ *Reader, _ string, n *Node) { *to = read(n) }
}

// Items appends what read makes of each item of a list.
func Items[T any](to *[]T, read func(item *Node) T) Value {
	return func(r *Reader, name string, n *Node) {
		for _, item := range r.List(n, name) {
			*to = append(*to, read(item))
		}
	}
}

// Parsed sets to to what parse makes of a text.
func Parsed[T any](to *T, parse func(text string) (T, error)) Value {
	return func(r *Reader, name string, n *Node) {
		text, ok := r.Text(n, name)
		if !ok {
			return
		}
		v, err := parse(text)
		if *to = v; err != nil {
			r.Fail(n, "%s: %v", name, err)
		}
	}
}

// Text reads any text.
func Text(to *string) Value {
	return Parsed(to, func(text string) (string, error) { return text, nil })
}

// Texts reads a list of texts, or a single one.
func Texts(to *[]string) Value {
	return func(r *Reader, name string, n *Node) {
		items := []*Node{n}
		if IsList(n) {
			items = r.List(n, name)
		}
		*to = make([]string, len(items))
		for i, item := range items {
			(*to)[i], _ = r.Text(item, name)
		}
	}
}

// Number reads a whole number from least to most.
func Number(to *int64, least, most int64) Value {
	return Parsed(to, func(text string) (int64, error) {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < least || v > most {
			return least, fmt.Errorf("%q is not a number from %d to %d", text, least, most)
		}
		return v, nil
	})
}

// OneOf reads one of two words.
func OneOf(to *string, one, other string) Value {
	return Parsed(to, func(text string) (string, error) {
		if text != one && text != other {
			return "", fmt.Errorf("%q is neither %s nor %s", text, one, other)
		}
		return text, nil
	})
}

// Truth reads true or false.
func Truth(to *bool) Value {
	return func(r *Reader, name string, n *Node) {
		var text string
		OneOf(&text, "true", "false")(r, name, n)
		*to = text == "true"
	}
}

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
