package request

// WantOnExpiry describes the values of "on_expiry".
const WantOnExpiry = `want "keep" or "release"`

// ParseOnExpiry reads what happens to a hold at its end if nobody has settled it. wrong describes
// the valid values if the text is none, and is empty otherwise.
func ParseOnExpiry(text []byte) (release bool, wrong string) {
	switch string(text) {
	case "keep", "KEEP":
		return false, ""
	case "release", "RELEASE":
		return true, ""
	}
	return false, WantOnExpiry + `, got "` + Clip(text) + `"`
}
