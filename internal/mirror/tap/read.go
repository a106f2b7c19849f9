package tap

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"twotier.dev/twotier/internal/strictyaml"
)

// example is a valid line of a mapping, for errors.
const example = "{sha: 5c4b..., key: 'KEYS[1]', limit: 'ARGV[3]', window: 'ARGV[2]', unit: ms, " +
	"allowed: REPLY == 1}"

// Read reads mappings: a YAML document with a list of calls. Scripts are read from files next to
// it. The error lists all mistakes, with line and column.
func Read(path string) ([]Mapping, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := strictyaml.New(path)
	var list []Mapping
	read := func(item *strictyaml.Node) Mapping { return readMapping(r, item, filepath.Dir(path)) }
	if top := r.Document(text); top != nil {
		strictyaml.Mapping{Name: "the file", Example: "calls: [" + example + "]", Valid: "calls",
			Fields: strictyaml.Fields{"calls": strictyaml.Items(&list, read)}}.Read(r, top)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no calls; want calls: [%s]", path, example)
	}
	return list, nil
}

// readMapping reads one mapping, whose script is relative to dir.
func readMapping(r *strictyaml.Reader, n *strictyaml.Node, dir string) Mapping {
	m := Mapping{unit: time.Second}
	has := strictyaml.Mapping{Name: "a call", Example: example,
		Valid: "sha, script, match, command, key, strip, ns, limit, window, unit, n, now, rules " +
			"and allowed",
		Fields: strictyaml.Fields{
			"sha": strictyaml.Parsed(&m.sha, parseSHA),
			"script": strictyaml.Parsed(&m.sha, func(path string) (string, error) {
				return shaOfFile(dir, path)
			}),
			"match":   strictyaml.Parsed(&m.match, regexp.Compile),
			"command": strictyaml.Text(&m.command),
			"key":     strictyaml.Parsed(&m.key, parseTerm),
			"limit":   strictyaml.Parsed(&m.limit, parseTerm),
			"window":  strictyaml.Parsed(&m.window, parseTerm),
			"n":       strictyaml.Parsed(&m.n, parseTerm),
			"now":     strictyaml.Parsed(&m.now, parseTerm),
			"unit":    strictyaml.Parsed(&m.unit, parseUnit),
			"strip":   strictyaml.Text(&m.strip),
			"ns":      strictyaml.Text(&m.ns),
			"allowed": strictyaml.Parsed(&m.allowed, parseCondition),
			"rules": strictyaml.Items(&m.rules, func(item *strictyaml.Node) string {
				name, _ := r.Text(item, "the name of a rule")
				return name
			}),
		}}.Read(r, n)
	m.command = strings.ToUpper(m.command)
	if wrong := m.complete(has); wrong != "" {
		r.Fail(n, "%s", wrong)
	}
	return m
}

// shaOfFile returns the SHA of a script in a file, whose path may be relative to dir.
func shaOfFile(dir, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	script, err := os.ReadFile(path)
	return sha1Of(script), err
}

func parseSHA(text string) (string, error) {
	sha := strings.ToLower(text)
	if !isSHA(sha) {
		return "", fmt.Errorf("%q has not the 40 hexadecimal digits of a SHA-1", text)
	}
	return sha, nil
}

func isSHA(text string) bool {
	return len(text) == 40 && strings.Trim(text, "0123456789abcdef") == ""
}

func parseUnit(text string) (time.Duration, error) {
	switch text {
	case "s":
		return time.Second, nil
	case "ms":
		return time.Millisecond, nil
	case "us":
		return time.Microsecond, nil
	}
	return time.Second, fmt.Errorf("%q is no unit: want s, ms or us", text)
}

// complete adds what CL.THROTTLE always means, and returns what is missing among the keys that a
// call has, or "".
func (m *Mapping) complete(has map[string]*strictyaml.Node) string {
	if m.command == throttle {
		m.key, m.n = term{true, 'A', 0, "ARGV[1]"}, term{true, 'A', 4, "ARGV[5]"}
		m.limit = term{set: true}
		m.window = m.limit
		m.allowed = condition{0, "==", term{set: true, text: "0"}}
	}
	calls := 0
	for _, key := range []string{"sha", "script", "match", "command"} {
		if has[key] != nil {
			calls++
		}
	}
	switch {
	case calls != 1:
		return "want one of sha, script, match and command, which identify the calls"
	case !m.key.set:
		return "key: missing; want KEYS[1] or ARGV[1]"
	case has["allowed"] == nil && m.command != throttle:
		return "allowed: missing; want a condition, such as " + conditionExample
	case m.limit.set != m.window.set:
		return "limit and window: want both, or rules"
	case m.limit.set && len(m.rules) > 0 && m.command != throttle:
		return "limit and rules: want one of them"
	}
	return ""
}
