module twotier

go 1.26
