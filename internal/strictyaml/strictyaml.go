package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Node is a value in a document, with its line and column.
type Node = yaml.Node

// MaxErrors is how many mistakes are reported in full.
const MaxErrors = 100

// Reader reads one document and collects the mistakes in it.
type Reader struct {
	path string
	errs []error
	more int // mistakes after MaxErrors of them
}

// New returns a reader. path is the document's name in errors.
func New(path string) *Reader { return &Reader{path: path} }

// Err returns the mistakes that were found, or nil. Of more than [MaxErrors], it returns the first
// ones and the number of the others.
func (r *Reader) Err() error {
	if r.more > 0 {
		return errors.Join(append(r.errs[:MaxErrors:MaxErrors],
			fmt.Errorf("%s: and %d more", r.path, r.more))...)
	}
	return errors.Join(r.errs...)
}

// Document returns the top node of a document, or nil if the text is not a single YAML document or
// has nothing but comments.
func (r *Reader) Document(text []byte) *Node {
	documents := r.load(text)
	switch len(documents) {
	case 0:
		return nil
	case 1:
		return Resolve(documents[0].Content[0])
	}
	r.Fail(&documents[1], "a second document; everything belongs into one")
	return nil
}

// Documents returns the top nodes of all documents of a text, or none if it is not YAML.
func (r *Reader) Documents(text []byte) []*Node {
	documents := r.load(text)
	tops := make([]*Node, len(documents))
	for i := range documents {
		tops[i] = Resolve(documents[i].Content[0])
	}
	return tops
}

func (r *Reader) load(text []byte) (documents []yaml.Node) {
	if err := yaml.Load(joinSurrogates(text), &documents, yaml.WithAllDocuments()); err != nil {
		r.failSyntax(err)
		return nil
	}
	for i := range documents {
		if n := findCycle(&documents[i], map[*Node]bool{}); n != nil {
			r.Fail(n, "an alias of what it is in itself")
			return nil
		}
	}
	x := expansion{sizes: map[*Node]int{}}
	for i := range documents {
		x.size(&documents[i])
	}
	if x.over != nil {
		r.Fail(x.over, "the aliases up to this one stand for more than %d values", maxExpanded)
		return nil
	}
	return documents
}

// findCycle returns an alias below n that refers to a node which contains it, or nil. within holds
// the nodes that contain n.
func findCycle(n *Node, within map[*Node]bool) *Node {
	if n.Kind == yaml.AliasNode {
		if within[n.Alias] {
			return n
		}
		return nil // its target has been visited
	}
	within[n] = true
	defer delete(within, n)
	for _, part := range n.Content {
		if found := findCycle(part, within); found != nil {
			return found
		}
	}
	return nil
}

// failSyntax reports the library's error with the line and column in front. It quotes none of the
// document, which may hold passwords.
func (r *Reader) failSyntax(err error) {
	bad, ok := errors.AsType[*yaml.LoadError](err)
	if !ok || bad.Mark.Line == 0 {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", r.path, err))
		return
	}
	text := bad.Message
	// The library's message names the anchor, which may be a password that begins with *.
	if strings.HasPrefix(text, "unknown anchor") {
		text = "no anchor of that name; quote a text that begins with *"
	}
	if at := bad.ContextMark; bad.ContextMsg != "" && at != bad.Mark {
		text += fmt.Sprintf(" %s that begins in line %d, column %d", bad.ContextMsg, at.Line,
			at.Column)
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d:%d: %s", r.path, bad.Mark.Line,
		bad.Mark.Column, text))
}

// Fail reports a mistake.
func (r *Reader) Fail(at *Node, format string, args ...any) {
	if len(r.errs) >= MaxErrors {
		r.more++
		return
	}
	text := shorten(fmt.Sprintf(format, args...))
	r.errs = append(r.errs, fmt.Errorf("%s: %s", r.Position(at), text))
}

// shorten leaves out the middle of a long message, because the quoted text may have any length.
func shorten(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2], "") + "..." +
		strings.ToValidUTF8(text[len(text)-most/2:], "")
}

// Position returns FILE:LINE:COLUMN, which editors and terminals recognize as a link.
func (r *Reader) Position(n *Node) string {
	return fmt.Sprintf("%s:%d:%d", r.path, n.Line, n.Column)
}

// Mapping defines how to read one mapping.
type Mapping struct {
	// Name is the name of the mapping in errors, and Example a valid line of it.
	Name, Example string
	// Fields are the known keys, and Valid names them in errors.
	Fields Fields
	Valid  string
	// Normal returns the spelling of a key that Each receives. Default: the key itself.
	Normal func(key string) string
	// Each is called for each pair whose key is not in Fields, with the nodes of the key and of
	// the value. Default: report the key as unknown.
	Each func(key string, at, to *Node)
}

// Read reads the pairs of n in order, and returns the values by their keys. An empty value is a
// mapping without pairs, since all its lines may be commented out.
func (m Mapping) Read(r *Reader, n *Node) map[string]*Node {
	n = Resolve(n)
	if n.Kind != yaml.MappingNode {
		if !IsNull(n) {
			r.Fail(n, "%s is not made of lines such as %q", m.Name, m.Example)
		}
		return nil
	}
	values, lines := map[string]*Node{}, map[string]int{}
	for pair := range slices.Chunk(n.Content, 2) {
		key := pair[0].Value
		if m.Normal != nil {
			key = m.Normal(key)
		}
		if line := lines[key]; line > 0 {
			r.Fail(pair[0], "%s is set already in line %d", key, line)
			continue
		}
		values[key], lines[key] = Resolve(pair[1]), pair[0].Line
		switch read, known := m.Fields[key]; {
		case read != nil:
			read(r, key, values[key])
		case known:
		case m.Each != nil:
			m.Each(key, pair[0], values[key])
		default:
			r.Unknown(pair[0], key, m.Valid)
		}
	}
	return values
}

// List returns the items of a sequence. name is its name in errors. An empty value has no items.
func (r *Reader) List(n *Node, name string) []*Node {
	n = Resolve(n)
	if n.Kind != yaml.SequenceNode {
		if !IsNull(n) {
			r.Fail(n, "%s is not a list", name)
		}
		return nil
	}
	items := make([]*Node, len(n.Content))
	for i, item := range n.Content {
		items[i] = Resolve(item)
	}
	return items
}

// Text returns the text of a scalar, as written. name is its name in errors.
func (r *Reader) Text(n *Node, name string) (text string, ok bool) {
	if n = Resolve(n); !IsText(n) {
		r.Fail(n, "%s is not a single value", name)
		return "", false
	}
	return n.Value, true
}

// Unknown reports a key that does not exist. valid names the keys that do.
func (r *Reader) Unknown(at *Node, key, valid string) {
	r.Fail(at, "unknown key %q; %s", key, valid)
}

// Resolve returns the node that an alias refers to, or n itself.
func Resolve(n *Node) *Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// IsNull reports whether a value is empty, null or ~.
func IsNull(n *Node) bool { return n.ShortTag() == "!!null" }

// IsText reports whether a value is a scalar other than null.
func IsText(n *Node) bool { return n.Kind == yaml.ScalarNode && !IsNull(n) }

// IsMapping reports whether a node is a mapping.
func IsMapping(n *Node) bool { return n.Kind == yaml.MappingNode }

// IsList reports whether a value is a sequence.
func IsList(n *Node) bool { return n.Kind == yaml.SequenceNode }

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

// joinSurrogates replaces the pairs of surrogates in a JSON text, such as "\ud83d\ude00", by the
// characters they stand for: JSON escapes characters beyond 16 bits that way, which YAML does not
// understand. Spaces behind each string make up for its shorter text, so that all values stay in
// their columns. joinSurrogates returns any other text unchanged, and leaves half a pair to YAML,
// which refuses it.
func joinSurrogates(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\u`)) || !json.Valid(text) {
		return text
	}
	joined := make([]byte, 0, len(text))
	inside, lost := false, 0
	for i := 0; i < len(text); {
		c, n := decodeSurrogatePair(text[i:])
		switch {
		case inside && n > 0:
			joined = utf8.AppendRune(joined, c)
			i, lost = i+n, lost+n-1
			continue
		case inside && text[i] == '\\':
			joined = append(joined, text[i])
			i++
		case text[i] == '"':
			inside = !inside
		}
		joined = append(joined, text[i])
		if i++; !inside {
			joined = append(joined, bytes.Repeat([]byte{' '}, lost)...)
			lost = 0
		}
	}
	return joined
}

// decodeSurrogatePair returns the character that the pair of surrogates at the beginning of a text
// stands for, and the length of the pair, or 0 if the text begins with anything else.
func decodeSurrogatePair(text []byte) (c rune, n int) {
	const half = len(`\ud83d`)
	if len(text) < 2*half || text[0] != '\\' || text[half] != '\\' {
		return 0, 0
	}
	high, low := decodeSurrogate(text[:half]), decodeSurrogate(text[half:2*half])
	if c = utf16.DecodeRune(high, low); c == utf8.RuneError {
		return 0, 0
	}
	return c, 2 * half
}

// decodeSurrogate returns the code unit of an escape such as \ud83d, or 0 if it is not a surrogate.
func decodeSurrogate(escape []byte) rune {
	if escape[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(escape[2:]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
