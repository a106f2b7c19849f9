package twotier

import "encoding/json"

// limitJSON is a limit in a message between nodes.
type limitJSON struct {
	Window int64
	Max    int64
	Period string `json:",omitempty"`
}

// MarshalJSON implements [json.Marshaler]. A period has its short form.
func (l Limit) MarshalJSON() ([]byte, error) {
	m := limitJSON{Window: l.Window, Max: l.Max}
	if l.Period != nil {
		m.Period = l.Period.String()
	}
	return json.Marshal(m)
}

// UnmarshalJSON implements [json.Unmarshaler]. An unknown period is an error.
func (l *Limit) UnmarshalJSON(text []byte) (err error) {
	var m limitJSON
	if err = json.Unmarshal(text, &m); err != nil {
		return err
	}
	*l = Limit{Window: m.Window, Max: m.Max}
	if m.Period != "" {
		l.Period, err = ParsePeriod(m.Period)
	}
	return err
}
