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
	read := func(key string, at, to *strictyaml.Node) {
		if key != "calls" {
			r.Unknown(at, key, "calls")
			return
		}
		for _, item := range r.List(to, "calls") {
			list = append(list, readMapping(r, item, filepath.Dir(path)))
		}
	}
	if top := r.Document(text); top != nil {
		strictyaml.Mapping{Name: "the file", Example: "calls: [" + example + "]",
			Each: read}.Read(r, top)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no calls; want calls: [%s]", path, example)
	}
	return list, nil
}

// reader reads one mapping.
type reader struct {
	*strictyaml.Reader

	m       Mapping
	dir     string
	calls   int // how many of sha, script, match and command it has
	allowed bool
}

func readMapping(r *strictyaml.Reader, n *strictyaml.Node, dir string) Mapping {
	one := reader{Reader: r, dir: dir, m: Mapping{unit: time.Second}}
	strictyaml.Mapping{Name: "a call", Example: example, Each: one.read}.Read(r, n)
	one.complete(n)
	return one.m
}

// read reads one field.
func (r *reader) read(key string, at, to *strictyaml.Node) {
	if key == "rules" {
		for _, item := range r.List(to, "rules") {
			if name, ok := r.Text(item, "the name of a rule"); ok {
				r.m.rules = append(r.m.rules, name)
			}
		}
		return
	}
	text, ok := r.Text(to, key)
	if !ok {
		return
	}
	var err error
	switch key {
	case "sha", "script", "match", "command":
		r.calls++
		err = r.readCall(key, text)
	case "key":
		r.m.key, err = parseTerm(text)
	case "limit":
		r.m.limit, err = parseTerm(text)
	case "window":
		r.m.window, err = parseTerm(text)
	case "n":
		r.m.n, err = parseTerm(text)
	case "now":
		r.m.now, err = parseTerm(text)
	case "unit":
		r.m.unit, err = parseUnit(text)
	case "strip":
		r.m.strip = text
	case "ns":
		r.m.ns = text
	case "allowed":
		r.allowed = true
		r.m.allowed, err = parseCondition(text)
	default:
		r.Unknown(at, key, "sha, script, match, command, key, strip, ns, limit, window, unit, n, "+
			"now, rules and allowed")
	}
	if err != nil {
		r.Fail(to, "%s: %v", key, err)
	}
}

// readCall reads a field that identifies calls.
func (r *reader) readCall(key, text string) (err error) {
	switch key {
	case "sha":
		r.m.sha = strings.ToLower(text)
		if !isSHA(r.m.sha) {
			return fmt.Errorf("%q has not the 40 hexadecimal digits of a SHA-1", text)
		}
	case "script":
		if !filepath.IsAbs(text) {
			text = filepath.Join(r.dir, text)
		}
		script, err := os.ReadFile(text)
		if err != nil {
			return err
		}
		r.m.sha = sha1Of(script)
	case "match":
		r.m.match, err = regexp.Compile(text)
	case "command":
		r.m.command = strings.ToUpper(text)
	}
	return err
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

// complete checks that nothing is missing, and adds what CL.THROTTLE always means.
func (r *reader) complete(n *strictyaml.Node) {
	if r.m.command == throttle {
		r.m.key, r.m.n = term{true, 'A', 0, "ARGV[1]"}, term{true, 'A', 4, "ARGV[5]"}
		r.m.limit = term{set: true}
		r.m.window, r.allowed = r.m.limit, true
		r.m.allowed = condition{0, "==", term{set: true, text: "0"}}
	}
	switch {
	case r.calls != 1:
		r.Fail(n, "want one of sha, script, match and command, which identify the calls")
	case !r.m.key.set:
		r.Fail(n, "key: missing; want KEYS[1] or ARGV[1]")
	case !r.allowed:
		r.Fail(n, "allowed: missing; want a condition, such as %s", conditionExample)
	case r.m.limit.set != r.m.window.set:
		r.Fail(n, "limit and window: want both, or rules")
	case r.m.limit.set && len(r.m.rules) > 0 && r.m.command != throttle:
		r.Fail(n, "limit and rules: want one of them")
	}
}
