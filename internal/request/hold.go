package request

// ParseOnExpiry reads what happens to a hold at its end if nobody has settled it. wrong describes
// the valid values if the text is none, and is empty otherwise.
func ParseOnExpiry(text []byte) (release bool, wrong string) {
	switch string(text) {
	case "keep":
		return false, ""
	case "release":
		return true, ""
	}
	return false, `want "keep" or "release", got "` + Clip(text) + `"`
}
