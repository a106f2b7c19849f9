package config

import (
	"fmt"
	"io"
	"os"
	"strings"

	"twotier.dev/twotier/internal/strictyaml"
)

// maxFile bounds the configuration file, so that a wrong path causes an error rather than
// exhausting memory.
const maxFile = 1 << 20

// fileValues holds the values of a configuration file: settings by name, and options by namespace
// and name.
type fileValues struct {
	settings   map[string]value
	namespaces map[string]map[string]value
	rules      *strictyaml.Node
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
	return parseFile(path, text)
}

// ReadRules returns the list of rules in the text of a configuration file, nil if it has none, or
// an error that lists all mistakes in the file. path is the file's name in errors.
func ReadRules(path string, text []byte) (*strictyaml.Node, error) {
	file, err := parseFile(path, text)
	return file.rules, err
}

// parseFile returns the values that a text sets, or an error that lists all its mistakes.
func parseFile(path string, text []byte) (fileValues, error) {
	r := fileReader{strictyaml.New(path), fileValues{
		settings: map[string]value{}, namespaces: map[string]map[string]value{}}}
	if top := r.Document(text); top != nil {
		r.mapping(top, "the file", r.setting)
	}
	return r.values, r.Err()
}

// fileReader collects the values that a file sets.
type fileReader struct {
	*strictyaml.Reader
	values fileValues
}

// mapping reads a mapping of settings. A key may have underscores in place of dashes, as in JSON;
// the names of namespaces are taken literally.
func (r *fileReader) mapping(n *strictyaml.Node, name string,
	each func(key string, at, to *strictyaml.Node)) {
	m := strictyaml.Mapping{Name: name, Example: "listen: 127.0.0.1:8080", Each: each}
	if name != namespacesKey {
		m.Normal = func(key string) string { return strings.ReplaceAll(key, "_", "-") }
	}
	m.Read(r.Reader, n)
}

// setting reads one key of the top level.
func (r *fileReader) setting(key string, at, to *strictyaml.Node) {
	if key == namespacesKey {
		r.mapping(to, namespacesKey, r.namespace)
		return
	}
	if key == rulesKey && strictyaml.IsList(to) {
		r.values.rules = to
		return
	}
	for _, s := range settings(new(Config)) {
		switch {
		case s.name != key:
		case s.notInFile:
			r.Fail(at, "%s belongs on the command line or in the environment, not in a file", key)
			return
		default:
			r.scalar(r.values.settings, key, at, to, s.isList())
			return
		}
	}
	r.Unknown(at, key, "twotier help serve lists them")
}

// namespace reads the settings of one namespace.
func (r *fileReader) namespace(name string, at, to *strictyaml.Node) {
	if err := CheckName(name); err != nil {
		r.Fail(at, "namespace: %v", err)
		return
	}
	options := map[string]value{}
	r.values.namespaces[name] = options
	r.mapping(to, "namespace "+name, func(option string, at, to *strictyaml.Node) {
		var names []string
		for _, o := range namespaceSettings(new(Namespace)) {
			if names = append(names, o.name); o.name == option {
				r.scalar(options, option, at, to, o.isList())
				return
			}
		}
		r.Unknown(at, option, "a namespace has "+strings.Join(names, ", "))
	})
}

// scalar stores the text of a value in values. It joins the items of a list with commas.
func (r *fileReader) scalar(values map[string]value, key string, at, to *strictyaml.Node,
	list bool) {
	switch {
	case strictyaml.IsNull(to):
		r.Fail(at, "%s has no value; write %s: VALUE, or %s: \"\" for none", key, key, key)
	case strictyaml.IsText(to):
		values[key] = value{to.Value, FromFile, r.Position(to)}
	case strictyaml.IsList(to) && list:
		values[key] = value{r.items(key, to), FromFile, r.Position(to)}
	case strictyaml.IsList(to):
		r.Fail(to, "%s has one value, not a list of them", key)
	default:
		r.Fail(to, "%s has no settings of its own", key)
	}
}

func (r *fileReader) items(key string, list *strictyaml.Node) string {
	items := make([]string, len(list.Content))
	for i, item := range list.Content {
		item = strictyaml.Resolve(item)
		if !strictyaml.IsText(item) {
			r.Fail(item, "%s: an item of the list is not a text", key)
		}
		items[i] = item.Value
	}
	return strings.Join(items, ", ")
}
