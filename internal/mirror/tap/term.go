package tap

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/internal/config"
)

// term is a text, or an argument of a call.
type term struct {
	set  bool
	from byte // 'K' for KEYS, 'A' for ARGV, 0 for text
	at   int  // from 0
	text string
}

// parseTerm reads KEYS[1], ARGV[1] or a text.
func parseTerm(text string) (t term, err error) {
	for _, list := range []string{"KEYS", "ARGV"} {
		if inner, ok := strings.CutPrefix(text, list+"["); ok {
			t.at, err = parseIndex(inner)
			return term{true, list[0], t.at, text}, err
		}
	}
	return term{set: true, text: text}, nil
}

// parseIndex reads the rest of an index after its bracket: 1 is the first one, as in Lua.
func parseIndex(inner string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(inner, "]"), 10, 16)
	if err != nil || n == 0 || !strings.HasSuffix(inner, "]") {
		return 0, fmt.Errorf("%q is no index, such as [1] for the first one", "["+inner)
	}
	return int(n) - 1, nil
}

// value returns the text of a term in a call.
func (t *term) value(keys, argv [][]byte) (string, error) {
	list := argv
	switch t.from {
	case 0:
		return t.text, nil
	case 'K':
		list = keys
	}
	if t.at >= len(list) {
		return "", fmt.Errorf("the call has no %s", t.text)
	}
	if list[t.at] == nil {
		return "", fmt.Errorf("the call's %s is empty or too long", t.text)
	}
	return string(list[t.at]), nil
}

// number returns the integer of a term, or preset if there is no such term or argument.
func (t *term) number(keys, argv [][]byte, preset int64) (int64, error) {
	if !t.set || preset != 0 && t.from == 'A' && t.at >= len(argv) {
		return preset, nil
	}
	text, err := t.value(keys, argv)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is no integer", t.text, text)
	}
	return n, nil
}

// duration returns the time of a term, a number of units or a duration such as 1m.
func (t *term) duration(keys, argv [][]byte, unit time.Duration) (time.Duration, error) {
	text, err := t.value(keys, argv)
	if err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil &&
		n >= 0 && n <= math.MaxInt64/int64(unit) {
		return time.Duration(n) * unit, nil // without rounding
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && n >= 0 && n < float64(math.MaxInt64)/float64(unit) {
		return time.Duration(n * float64(unit)), nil
	}
	if d, err := config.ParseDuration(text); t.from == 0 && err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("%s: %.40q is no time in %s", t.text, text, unit)
}

// condition compares a reply with a term: REPLY[1] == 0.
type condition struct {
	element int // from 0; -1 is the reply itself
	op      string
	right   term
}

// conditionExample shows the form of a condition in errors.
const conditionExample = "REPLY == 1, REPLY[1] == 0, REPLY <= ARGV[3] or REPLY != nil"

func parseCondition(text string) (c condition, err error) {
	words := strings.Fields(text)
	if len(words) != 3 || !strings.HasPrefix(words[0], "REPLY") {
		return c, fmt.Errorf("%q is no condition, such as %s", text, conditionExample)
	}
	c.element, c.op = -1, words[1]
	if inner := strings.TrimPrefix(words[0], "REPLY"); inner != "" {
		if c.element, err = parseIndex(strings.TrimPrefix(inner, "[")); err != nil {
			return c, err
		}
	}
	if c.right, err = parseTerm(words[2]); err != nil {
		return c, err
	}
	_, isNumber := parseNumber(words[2])
	_, known := compare(0, c.op, 0)
	switch {
	case !known:
		return c, fmt.Errorf("%q is no comparison: want ==, !=, <, <=, > or >=", c.op)
	case c.right.from == 0 && !isNumber && c.op != "==" && c.op != "!=":
		return c, fmt.Errorf("%s can be compared only with == and !=", words[2])
	}
	return c, nil
}

func parseNumber(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// holds reports whether the condition holds for a reply. Numbers are compared as such, anything
// else as text, null is nil, and true and false of RESP3 are 1 and 0.
func (c *condition) holds(reply *value, argv [][]byte) (bool, error) {
	v := reply
	if c.element >= 0 {
		if c.element >= len(reply.elems) {
			return false, fmt.Errorf("the reply has no element %d", c.element+1)
		}
		v = reply.elems[c.element]
	}
	text := string(v.text)
	switch {
	case v.kind == 0:
		text = "nil"
	case v.kind == '#' && text == "t":
		text = "1"
	case v.kind == '#':
		text = "0"
	case len(v.elems) > 0 || v.kind == '*':
		return false, fmt.Errorf("the reply is an array: want REPLY[1] or another element")
	}
	right, err := c.right.value(nil, argv)
	if err != nil {
		return false, err
	}
	a, isNumber := parseNumber(text)
	b, alsoNumber := parseNumber(right)
	if !isNumber || !alsoNumber {
		if c.op != "==" && c.op != "!=" {
			return false, fmt.Errorf("%.40q %s %.40q: these are no numbers", text, c.op, right)
		}
		return (text == right) == (c.op == "=="), nil
	}
	holds, _ := compare(a, c.op, b)
	return holds, nil
}

func compare(a float64, op string, b float64) (holds, known bool) {
	holds, known = map[string]bool{"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b,
		">": a > b, ">=": a >= b}[op]
	return holds, known
}
