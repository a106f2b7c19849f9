package config

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"twotier.dev/twotier/internal/redisurl"
)

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
	root.Content = append(root.Content, namespaceNodes(maps.Keys(c.Namespaces),
		func(name, option string) (value, bool) {
			return c.namespaceValues[name][option], true
		})...)
	if c.File != "" {
		root.HeadComment = "# read from " + c.File
	}
	return printNode(w, root)
}

// PrintNamespaces writes the namespaces of the configuration file as a block that can take the
// place of the file's own: with the options that they have in the file, except for the ladders of
// some namespaces, which ladders spells.
func (c Config) PrintNamespaces(w io.Writer, ladders map[string]string) error {
	names := maps.Clone(ladders)
	for name := range c.ownValues {
		names[name] = ladders[name]
	}
	return printNode(w, &yaml.Node{Kind: yaml.MappingNode, Content: namespaceNodes(maps.Keys(names),
		func(name, option string) (value, bool) {
			if option == ladderOption && names[name] != "" {
				return value{text: names[name]}, true
			}
			v, own := c.ownValues[name][option]
			return value{text: v.text}, own
		})})
}

// namespaceNodes returns the nodes of the key of the namespaces and of these namespaces, with the
// options that have values.
func namespaceNodes(names iter.Seq[string],
	valueOf func(name, option string) (v value, has bool)) []*yaml.Node {
	all := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(names) {
		options := &yaml.Node{Kind: yaml.MappingNode}
		for _, o := range namespaceSettings(new(Namespace)) {
			if v, has := valueOf(name, o.name); has {
				options.Content = append(options.Content, pairNodes(o.name, v, o.isList())...)
			}
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

// maskSecrets returns v with its secrets hidden.
func maskSecrets(s setting, v value) value {
	switch {
	case s.name == "redis":
		v.text = redisurl.Mask(v.text)
	case v.text == "":
	case s.name == notifyURL:
		v.text = maskURL(v.text)
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
