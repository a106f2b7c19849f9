package load

import "bytes"

// Body is the body as it would be sent now.
func (r *Request) Body() []byte {
	_, body, _ := bytes.Cut(r.raw, headEnd)
	return body
}
