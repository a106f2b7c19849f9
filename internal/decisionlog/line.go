package decisionlog

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

// stamp is RFC 3339 in UTC with milliseconds.
const stamp = "2006-01-02T15:04:05.000Z"

// appendLine appends a decision as a JSON object and the end of the line.
func appendLine(b []byte, d *decisions.Decision, node string, now time.Time) []byte {
	b = append(b, `{"time":"`...)
	b = now.UTC().AppendFormat(b, stamp)
	b = appendText(append(b, `","ns":`...), cmp.Or(string(d.NS), twotier.DefaultNamespace))
	if name := d.RuleName(); name != "" {
		b = appendText(append(b, `,"rule":`...), name)
	}
	b = appendText(append(b, `,"key":`...), string(d.Key))
	b = strconv.AppendInt(append(b, `,"n":`...), d.N, 10)
	if d.Distinct {
		b = append(b, `,"distinct":true`...)
	}
	b = append(append(b, `,"verdict":"`...), d.Verdict.String()...)
	b = append(append(b, `","door":"`...), d.Door...)
	b = append(b, `","limits":[`...)
	for i := range d.Limits {
		l := &d.Limits[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"window":"`...), twotier.FormatWindow(l.Window, l.Period)...)
		b = strconv.AppendInt(append(b, `","count":`...), l.Count, 10)
		b = strconv.AppendInt(append(b, `,"max":`...), l.Max, 10)
		b = append(b, '}')
	}
	b = appendText(append(b, `],"node":`...), node)
	if d.Version != 0 {
		b = strconv.AppendInt(append(b, `,"rules_version":`...), d.Version, 10)
	}
	if d.Trace != nil && d.Trace.TraceContext() != nil {
		b = appendText(append(b, `,"trace_id":`...), d.Trace.TraceContext().TraceID())
	}
	return append(b, "}\n"...)
}

// appendText appends a JSON string.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(text) // a string always marshals
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
