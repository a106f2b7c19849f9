package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds the configuration file, so that a wrong path is an error rather than a machine out
// of memory.
const maxFile = 1 << 20

// namespacesKey is the key of the namespaces, which only the file has.
const namespacesKey = "namespaces"

// fileValues holds the values of a configuration file: those of settings by name, and those of each
// namespace by option.
type fileValues struct {
	settings   map[string]value
	namespaces map[string]map[string]value
}

// readFile returns the values that a configuration file sets, or an error that lists all mistakes
// in it.
func readFile(path string) (fileValues, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileValues{}, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fileValues{}, fmt.Errorf("--config: %w", err)
	}
	if len(text) > maxFile {
		return fileValues{}, fmt.Errorf("--config: %s is longer than 1MiB", path)
	}
	r := fileReader{path: path, values: fileValues{map[string]value{},
		map[string]map[string]value{}}}
	r.read(text)
	return r.values, errors.Join(r.errs...)
}

// fileReader collects the values that a file sets. It carries on after a mistake, so that all
// mistakes are reported at once.
type fileReader struct {
	path   string
	values fileValues
	errs   []error
}

func (r *fileReader) read(text []byte) {
	var documents []yaml.Node
	if err := yaml.Load(text, &documents, yaml.WithAllDocuments()); err != nil {
		r.syntax(err)
		return
	}
	if len(documents) == 0 {
		return // nothing but comments
	}
	if len(documents) > 1 {
		r.fail(&documents[1], "a second document; everything belongs into one")
		return
	}
	r.mapping(documents[0].Content[0], "the file", r.setting)
}

// syntax reports the library's error with the line and column in front. It quotes none of the file,
// which may hold passwords.
func (r *fileReader) syntax(err error) {
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

func (r *fileReader) fail(at *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s", r.position(at), fmt.Sprintf(format, args...)))
}

// position returns FILE:LINE:COLUMN, which editors and terminals recognize as a link.
func (r *fileReader) position(n *yaml.Node) string {
	return fmt.Sprintf("%s:%d:%d", r.path, n.Line, n.Column)
}

// mapping calls each for the pairs of the mapping n. name is what errors call it. A key may have
// underscores in place of dashes, as in JSON; the names of namespaces are taken literally.
func (r *fileReader) mapping(n *yaml.Node, name string, each func(key string, at, to *yaml.Node)) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		if n.ShortTag() != "!!null" { // null: all its lines may be commented out
			r.fail(n, "%s is not made of lines such as \"listen: 127.0.0.1:8080\"", name)
		}
		return
	}
	seen := map[string]*yaml.Node{}
	for pair := range slices.Chunk(n.Content, 2) {
		key := pair[0].Value
		if name != namespacesKey {
			key = strings.ReplaceAll(key, "_", "-")
		}
		if first := seen[key]; first != nil {
			r.fail(pair[0], "%s is set already in line %d", key, first.Line)
			continue
		}
		seen[key] = pair[0]
		each(key, pair[0], resolve(pair[1]))
	}
}

// resolve returns the node that an alias refers to, or n itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// setting reads one key of the top level.
func (r *fileReader) setting(key string, at, to *yaml.Node) {
	if key == namespacesKey {
		r.mapping(to, namespacesKey, r.namespace)
		return
	}
	known := []string{namespacesKey}
	for _, s := range settings() {
		switch {
		case s.name != key:
			known = append(known, s.name)
		case s.notInFile:
			r.fail(at, "%s belongs on the command line or in the environment, not in a file", key)
			return
		default:
			r.scalar(r.values.settings, key, at, to, s.list())
			return
		}
	}
	r.unknown(at, key, known)
}

// namespace reads the settings of one namespace.
func (r *fileReader) namespace(name string, at, to *yaml.Node) {
	if err := CheckName(name); err != nil {
		r.fail(at, "namespace: %v", err)
		return
	}
	options := map[string]value{}
	r.values.namespaces[name] = options
	r.mapping(to, "namespace "+name, func(option string, at, to *yaml.Node) {
		if !slices.Contains(namespaceOptions(), option) {
			r.unknown(at, option, namespaceOptions())
			return
		}
		r.scalar(options, option, at, to, option == ladderOption)
	})
}

// scalar stores the text of a value in values. It joins the items of a list with commas.
func (r *fileReader) scalar(values map[string]value, key string, at, to *yaml.Node, list bool) {
	switch {
	case to.ShortTag() == "!!null":
		r.fail(at, "%s has no value; write %s: VALUE, or %s: \"\" for none", key, key, key)
	case to.Kind == yaml.ScalarNode:
		values[key] = value{to.Value, FromFile, r.position(to)}
	case to.Kind == yaml.SequenceNode && list:
		values[key] = value{r.items(key, to), FromFile, r.position(to)}
	case to.Kind == yaml.SequenceNode:
		r.fail(to, "%s has one value, not a list of them", key)
	default:
		r.fail(to, "%s has no settings of its own", key)
	}
}

func (r *fileReader) items(key string, list *yaml.Node) string {
	items := make([]string, len(list.Content))
	for i, item := range list.Content {
		item = resolve(item)
		if item.Kind != yaml.ScalarNode || item.ShortTag() == "!!null" {
			r.fail(item, "%s: an item of the list is not a text", key)
		}
		items[i] = item.Value
	}
	return strings.Join(items, ", ")
}

// list reports whether the setting is a comma-separated list, which a file may write as a sequence.
func (s setting) list() bool { return strings.HasSuffix(s.arg, ",...") }

func (r *fileReader) unknown(at *yaml.Node, key string, known []string) {
	if near := Nearest(key, known); near != "" {
		r.fail(at, "unknown key %q; did you mean %s?", key, near)
		return
	}
	if len(known) <= len(namespaceOptions()) {
		r.fail(at, "unknown key %q; a namespace has %s", key, strings.Join(known, ", "))
		return
	}
	r.fail(at, "unknown key %q; twotier help serve lists them", key)
}
