package cli

// JoinPoints and Micros are exported for direct tests.
var (
	JoinPoints = joinPoints
	Micros     = micros
	FormatSize = formatSize
)
