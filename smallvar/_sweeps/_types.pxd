ctypedef fused real_x:  # element type of the data
    float
    double

ctypedef fused real_c:  # element type in which scores are computed
    float
    double
