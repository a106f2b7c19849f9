package config

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"twotier.dev/twotier/internal/redisurl"
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

// Print writes the settings in the format of the configuration file, each with a comment that names
// its origin. It masks the password of Redis, the path of the webhook and other secrets, so the
// output is safe to show and, except for those, can be read back.
func (c Config) Print(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range settings(new(Config)) {
		if s.name == rulesKey && c.RuleList != nil {
			root.Content = append(root.Content, textNode(rulesKey), resolveAliases(c.RuleList))
		} else if !s.notInFile {
			root.Content = append(root.Content,
				pairNodes(s.name, maskSecrets(s, c.values[s.name]), s.isList())...)
		}
	}
	root.Content = append(root.Content, c.namespaceNodes()...)
	if c.File != "" {
		root.HeadComment = "# read from " + c.File
	}
	return printNode(w, root)
}

// namespaceNodes returns the nodes of the key of the namespaces and of the namespaces.
func (c Config) namespaceNodes() []*yaml.Node {
	all := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(maps.Keys(c.Namespaces)) {
		options := &yaml.Node{Kind: yaml.MappingNode}
		for _, o := range namespaceSettings(new(Namespace)) {
			options.Content = append(options.Content,
				pairNodes(o.name, c.namespaceValues[name][o.name], o.isList())...)
		}
		all.Content = append(all.Content, textNode(name), options)
	}
	return []*yaml.Node{textNode(namespacesKey), all}
}

func printNode(w io.Writer, n *yaml.Node) error {
	text, err := yaml.Dump(n, yaml.WithLineWidth(-1))
	if err != nil {
		return fmt.Errorf("print the settings: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// resolveAliases returns a copy of a node with its aliases replaced by their targets, which may lie
// outside of the node. It returns a node whose copy would be too large unchanged.
func resolveAliases(n *yaml.Node) *yaml.Node {
	left := 100_000 // nodes
	var resolve func(n *yaml.Node) *yaml.Node
	resolve = func(n *yaml.Node) *yaml.Node {
		if left--; left < 0 {
			return n
		}
		if n.Kind == yaml.AliasNode {
			return resolve(n.Alias)
		}
		whole := *n
		whole.Anchor, whole.Content = "", nil
		for _, part := range n.Content {
			whole.Content = append(whole.Content, resolve(part))
		}
		return &whole
	}
	if whole := resolve(n); left >= 0 {
		return whole
	}
	return n
}

// hidden stands for a secret.
const hidden = "***"

func maskSecrets(s setting, v value) value {
	switch u, err := url.Parse(v.text); {
	case s.name == "redis":
		v.text = redisurl.Mask(v.text)
	case v.text == "":
	case s.name == notifyURL:
		v.text = hidden
		if err == nil {
			v.text = u.Scheme + "://" + u.Host + "/" + hidden
		}
	case s.name == "cluster-secret" || s.name == "admin-token":
		v.text = hidden
	}
	return v
}

// pairNodes returns the nodes of a key and its value, with a comment that names the value's origin.
func pairNodes(key string, v value, list bool) []*yaml.Node {
	to := textNode(v.text)
	if list && v.text != "" {
		to = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for item := range strings.SplitSeq(v.text, ",") {
			to.Content = append(to.Content, textNode(strings.TrimSpace(item)))
		}
	}
	to.LineComment = strings.TrimSpace(string(v.origin) + " " + v.where)
	return []*yaml.Node{textNode(key), to}
}

// textNode returns a node that reads back as text. It quotes a text that YAML would read as null.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if slices.Contains([]string{"", "~", "null", "Null", "NULL"}, text) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
