package peerhttp

// What both sides of a connection between nodes agree on.
const (
	// Path is where nodes send each other messages.
	Path = "/peer"
	// MaxBody bounds a message, in bytes.
	MaxBody = 4 << 20
	// Media is a type that a page of another site can't send without a preflight request.
	Media = "application/x-twotier-peer"
	// HeaderPass carries the proof that the sender of a message is a node.
	HeaderPass = "Twotier-Pass"
)
