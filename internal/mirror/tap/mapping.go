package tap

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/strictyaml"
)

// Mapping declares which calls are verdicts of the old limiter, and their meaning. [Read] makes
// one.
type Mapping struct {
	// sha, in lower-case hexadecimal, match or command identify the calls.
	sha     string
	match   *regexp.Regexp
	command string

	key, limit, window, n, now term
	strip, ns                  string
	unit                       time.Duration
	rules                      []string
	allowed                    condition
}

// sha1Of returns the SHA of a script, as EVALSHA names it.
func sha1Of(script []byte) string {
	sum := sha1.Sum(script)
	return hex.EncodeToString(sum[:])
}

// verdict returns the verdict of a call, except for its answer.
func (m *Mapping) verdict(keys, argv [][]byte, now time.Time) (v mirror.Verdict, err error) {
	check := client.Check{Namespace: m.ns, Rules: m.rules}
	if check.Key, err = m.key.value(keys, argv); err != nil {
		return v, err
	}
	check.Key = client.SafeKey(strings.TrimPrefix(check.Key, m.strip))
	if check.N, err = m.n.number(keys, argv, 1); err != nil {
		return v, err
	}
	check.Peek = check.N == 0
	if check.N < 0 || check.N > math.MaxInt32 {
		return v, fmt.Errorf("n: %d is not a number from 0 to %d", check.N, math.MaxInt32)
	}
	limit, err := m.limitOf(keys, argv)
	if err != nil {
		return v, err
	}
	if limit != nil {
		check.Limits = []client.Limit{*limit}
	}
	v.At = now.UnixMilli()
	if m.now.set {
		since, err := m.now.duration(keys, argv, m.unit)
		if err != nil {
			return v, err
		}
		v.At = since.Milliseconds()
	}
	v.Checks = []client.Check{check}
	return v, nil
}

// throttle is the command of redis-cell, whose arguments have a fixed meaning.
const throttle = "CL.THROTTLE"

// limitOf returns the limit of a call, or nil if rules judge it.
func (m *Mapping) limitOf(keys, argv [][]byte) (*client.Limit, error) {
	if len(m.rules) > 0 || !m.limit.set {
		return nil, nil
	}
	if m.command == throttle {
		return throttleLimit(argv)
	}
	most, err := m.limit.number(keys, argv, 0)
	if err != nil {
		return nil, err
	}
	window, err := m.window.duration(keys, argv, m.unit)
	if err != nil {
		return nil, err
	}
	if window < time.Millisecond || most < 0 {
		return nil, fmt.Errorf("a limit of %d in %s: want at least 0 and 1ms", most, window)
	}
	return &client.Limit{Max: most, Window: window.Truncate(time.Millisecond)}, nil
}

// throttleLimit returns the limit of CL.THROTTLE key max_burst count period, as --resp of a server
// does: max_burst+1 in the time in which as many are refilled.
func throttleLimit(argv [][]byte) (*client.Limit, error) {
	var numbers [3]float64 // max_burst, count, period
	for i := range numbers {
		if i+1 >= len(argv) {
			return nil, fmt.Errorf("%s needs key, max_burst, count and period", throttle)
		}
		n, err := strconv.ParseUint(string(argv[i+1]), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%s: %.40q is no number", throttle, argv[i+1])
		}
		numbers[i] = float64(n)
	}
	most := numbers[0] + 1
	ms := math.Ceil(numbers[2] * 1000 * most / numbers[1])
	if !(ms >= 1 && ms < math.MaxInt64/1e6) {
		return nil, fmt.Errorf("%s: a window of %g ms", throttle, ms)
	}
	return &client.Limit{Max: int64(most), Window: time.Duration(ms) * time.Millisecond}, nil
}

// find returns the mapping of a command, and its keys and arguments.
func (t *Tap) find(words [][]byte) (m *Mapping, keys, argv [][]byte) {
	name := strings.ToUpper(string(words[0]))
	switch name {
	case "SCRIPT":
		if len(words) == 3 && bytes.EqualFold(words[1], []byte("LOAD")) {
			t.learn(words[2])
		}
		return nil, nil, nil
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		if len(words) < 3 {
			return nil, nil, nil
		}
		n, err := strconv.ParseUint(string(words[2]), 10, 31)
		if err != nil || int(n) > len(words)-3 {
			return nil, nil, nil
		}
		if strings.HasPrefix(name, "EVALSHA") {
			m = t.known(strings.ToLower(string(words[1])))
		} else {
			m = t.learn(words[1])
		}
		return m, words[3 : 3+n], words[3+n:]
	}
	for i := range t.opt.Mappings {
		if m := &t.opt.Mappings[i]; m.command == name {
			return m, nil, words[1:]
		}
	}
	return nil, nil, nil
}

// maxScripts is the number of scripts that are known by their SHA.
const maxScripts = 1024

func (t *Tap) known(sha string) *Mapping {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.scripts[sha]
}

// learn returns the mapping of a script, and remembers it for its SHA.
func (t *Tap) learn(script []byte) *Mapping {
	if script == nil {
		return nil // too long
	}
	sha := sha1Of(script)
	if m := t.known(sha); m != nil {
		return m
	}
	for i := range t.opt.Mappings {
		m := &t.opt.Mappings[i]
		if m.match != nil && m.match.Match(script) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if len(t.scripts) < maxScripts {
				t.scripts[sha] = m
			}
			return m
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.others) < maxScripts {
		t.others[sha] = struct{}{}
	}
	return nil
}

// unknownScript returns the SHA-1 of an EVALSHA whose script has no mapping, and whose text has not
// passed either, or "".
func (t *Tap) unknownScript(words [][]byte) string {
	name := strings.ToUpper(string(words[0]))
	if len(words) < 3 || name != "EVALSHA" && name != "EVALSHA_RO" {
		return ""
	}
	sha := strings.ToLower(string(words[1]))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, other := t.others[sha]
	if other || t.scripts[sha] != nil || !isSHA(sha) {
		return ""
	}
	return sha
}

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
	unit, known := map[string]time.Duration{"s": time.Second, "ms": time.Millisecond,
		"us": time.Microsecond}[text]
	if !known {
		return time.Second, fmt.Errorf("%q is no unit: want s, ms or us", text)
	}
	return unit, nil
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
