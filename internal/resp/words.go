package resp

// option is a word that begins a part of a command.
type option uint8

const (
	optionNone option = iota
	optionNS
	optionN
	optionTS
	optionAt
	optionAck
	optionLimit
	optionRule
	optionKey
	optionCountDenied
	optionCharge
	optionDryRun
	optionBounds
	optionWindow
	optionBy
	optionHold
	optionConcurrent
	optionOnExpiry
)

// optionOf returns the option of that name, in any case.
func optionOf(word []byte) option {
	var b [len("COUNTDENIED")]byte
	if len(word) > len(b) {
		return optionNone
	}
	switch string(upper(b[:0], word)) {
	case "LIMIT":
		return optionLimit
	case "KEY":
		return optionKey
	case "NS":
		return optionNS
	case "N":
		return optionN
	case "TS":
		return optionTS
	case "AT":
		return optionAt
	case "ACK":
		return optionAck
	case "RULE":
		return optionRule
	case "COUNTDENIED":
		return optionCountDenied
	case "CHARGE":
		return optionCharge
	case "DRYRUN":
		return optionDryRun
	case "BOUNDS":
		return optionBounds
	case "WINDOW":
		return optionWindow
	case "BY":
		return optionBy
	case "HOLD":
		return optionHold
	case "CONCURRENT":
		return optionConcurrent
	case "ONEXPIRY":
		return optionOnExpiry
	}
	return optionNone
}

// upper appends word in capital letters.
func upper(b, word []byte) []byte {
	for _, c := range word {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// String returns the option's name in errors, which is the name of the field in the HTTP API.
func (o option) String() string {
	return [...]string{"", "ns", "n", "ts", "at", "ack", "limit", "rule", "key",
		"count_denied", "charge", "dry_run", "bounds", "window", "by", "hold", "concurrent",
		"on_expiry"}[o]
}
