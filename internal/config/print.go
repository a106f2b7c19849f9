package config

import (
	"fmt"
	"io"
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
	namespaces := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(maps.Keys(c.Namespaces)) {
		options := &yaml.Node{Kind: yaml.MappingNode}
		for _, o := range namespaceOptions() {
			v := c.namespaceValues[name][o]
			options.Content = append(options.Content, pairNodes(o, v, o == ladderOption)...)
		}
		namespaces.Content = append(namespaces.Content, textNode(name), options)
	}
	root.Content = append(root.Content, textNode(namespacesKey), namespaces)
	text, err := yaml.Dump(root, yaml.WithLineWidth(-1))
	if err != nil {
		return fmt.Errorf("print the settings: %w", err)
	}
	if c.File != "" {
		text = slices.Concat([]byte("# read from "+c.File+"\n"), text)
	}
	_, err = w.Write(text)
	return err
}

// PrintNamespaces writes the namespaces of the configuration file as a block that can take the
// place of the file's own: with the options that they have in the file, except for the ladders of
// some namespaces, which ladders spells.
func (c Config) PrintNamespaces(w io.Writer, ladders map[string]string) error {
	namespaces := &yaml.Node{Kind: yaml.MappingNode}
	names := maps.Clone(ladders)
	for name := range c.ownValues {
		names[name] = ladders[name]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		options := &yaml.Node{Kind: yaml.MappingNode}
		for _, o := range namespaceOptions() {
			v, own := c.ownValues[name][o]
			if o == ladderOption && names[name] != "" {
				v.text, own = names[name], true
			}
			if own {
				pair := pairNodes(o, v, o == ladderOption)
				pair[1].LineComment = ""
				options.Content = append(options.Content, pair...)
			}
		}
		namespaces.Content = append(namespaces.Content, textNode(name), options)
	}
	text, err := yaml.Dump(&yaml.Node{Kind: yaml.MappingNode,
		Content: []*yaml.Node{textNode(namespacesKey), namespaces}}, yaml.WithLineWidth(-1))
	if err != nil {
		return fmt.Errorf("print the namespaces: %w", err)
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
