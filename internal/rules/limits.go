package rules

import "encoding/json"

// namedLimit is a limit of a named rule, and the place of its maximum.
type namedLimit struct {
	Rule   string `json:"rule"`
	Window string `json:"window"`
	Max    int64  `json:"max"`
	At     string `json:"at"`
}

// Limits lists the limits of the named rules of a stored version as JSON, in their order, each with
// the position of its maximum as rules:LINE:COLUMN: an editor replaces the digits there. Limits of
// overrides, on distinct values and on concurrent holds are left out.
func Limits(text []byte) ([]byte, error) {
	doc, err := ReadVersion("rules", text)
	if err != nil {
		return nil, err
	}
	list := []namedLimit{}
	for _, l := range doc.source.Limits {
		if l.Rule != "" && l.List == 0 && !l.Distinct {
			list = append(list, namedLimit{l.Rule, l.Text, l.Max, l.MaxAt})
		}
	}
	return json.Marshal(list)
}
